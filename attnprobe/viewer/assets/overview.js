/* Model view: every layer and head of a stack, as small maps or coloured by a score. */
var SMALL = 64;
function most(V, s, name) {
  var high = 0;
  s.layers.forEach(function (l) { l.heads.forEach(function (h) { high = Math.max(high, scoreAt(V, h, name) || 0); }); });
  return high || 1;
}
function factOf(V, name) { return V.facts.find(function (f) { return f.name === name; }); }
function factValue(fact, v) { return fact.unit === "share" ? pc(v) : num(v); }
function scoresKnown(V) {
  var s = stackOf(V);
  return V.facts.filter(function (f, i) { return s.layers.some(function (l) { return l.heads.some(function (h) { return h.scores[i] != null; }); }); });
}
function overview(V) {
  var s = stackOf(V), st = V.state, heads = Math.max.apply(0, s.layers.map(function (l) { return l.heads.length; })), maps = st.show === "maps";
  var fact = maps ? null : factOf(V, st.show), high = maps ? 0 : most(V, s, st.show), size = st.large ? "1fr" : heads <= 2 ? "92px" : heads <= 4 ? "72px" : "1fr";
  var some = s.layers.some(function (l) { return l.heads.some(function (d) { return d.full == null; }); });
  var names = Array.from({ length: heads }, function (_, i) { var h = s.layers[0].heads[i]; return h ? h.head : i; });
  var h = '<div class="ov" role="listbox" aria-label="Heads, ' + esc(maps ? "maps" : fact.label) + '" style="grid-template-columns:26px repeat(' + heads + ",minmax(0," + size + '))"><span role="presentation"></span>';
  names.forEach(function (n) { h += '<span role="presentation">' + n + "</span>"; });
  s.layers.forEach(function (l, li) {
    h += '<span role="presentation" style="grid-column:1">' + l.layer + "</span>";
    l.heads.forEach(function (d, hi) { h += button(V, l, li, d, hi, fact, high, some && d.full != null); });
  });
  find(V, ".ovbox").innerHTML = h + "</div>";
  find(V, ".ovs").innerHTML = esc(s.name + ". ") + (maps ? (st.full === "contrast" ? "Each square is one head’s map, from its least to its most." : "Each square is one head’s map.") : esc(fact.label + ". " + fact.description)) + (some ? " Dot: kept in full." : "");
  find(V, ".ovleg").innerHTML = maps ? "" : '<div class="ramp"><span><i style="background:' + shadeOfScore(0) + '"></i>' + factValue(fact, 0) + '</span><span><i style="background:' + shadeOfScore(0.5) + '"></i>' + factValue(fact, high / 2) + '</span><span><i style="background:' + shadeOfScore(1) + '"></i>' + factValue(fact, high) + "</span></div>";
  if (maps) all(V, ".ov canvas").forEach(function (c) { var b = c.parentNode; thumbnail(V, s, s.layers[+b.dataset.l], +b.dataset.h, c); });
}
/* As the figures of heads: white to dark grey in even steps. */
function shadeOfScore(share) { return "color-mix(in oklab,var(--zero),var(--ink) " + (75 * share).toFixed(1) + "%)"; }
function button(V, l, li, d, hi, fact, high, full) {
  var on = li === V.state.layer && hi === V.state.head, v = fact ? scoreAt(V, d, fact.name) : null;
  var label = "Layer " + l.layer + ", head " + d.head + (fact ? ", " + fact.label.toLowerCase() + " " + (v == null ? "not known" : factValue(fact, v)) : "");
  return '<button type="button" role="option" tabindex="' + (on ? 0 : -1) + '" aria-selected="' + on + '" data-l="' + li + '" data-h="' + hi + '"' + (full ? ' class="full"' : "") +
    (fact ? ' style="background:' + (v == null ? "var(--band)" : shadeOfScore(Math.max(0, v) / high)) + '"' : "") + ' aria-label="' + esc(label + (full ? ", kept in full" : "")) + '" title="' + esc(label) + '">' + (fact ? "" : "<canvas></canvas>") + "</button>";
}
/* A head's map small: means over blocks where it is larger than the square that it gets. */
function thumbnail(V, s, layer, at, canvas) {
  var m = V.state.measure, map = mapOf(V, s, layer, at, m);
  if (!map) return;
  var rows = Math.min(SMALL, map.rows), columns = Math.min(SMALL, map.columns), values = map.values;
  if (rows < map.rows || columns < map.columns) {
    var R = blocksOf(map.rows, rows), C = blocksOf(map.columns, columns);
    values = new Float32Array(rows * columns);
    R.forEach(function (r, i) { C.forEach(function (c, j) {
      var sum = 0;
      for (var q = r[0]; q < r[1]; q++) for (var k = c[0]; k < c[1]; k++) sum += map.values[q * map.columns + k];
      values[i * columns + j] = sum / ((r[1] - r[0]) * (c[1] - c[0]));
    }); });
  }
  paint(canvas, rows, columns, values, colourOf(V, m, rangeOf(V, values)));
}
function pick(V, l, h, focus) {
  var s = stackOf(V);
  if (!s.layers[l] || !s.layers[l].heads[h]) return;
  V.state.layer = l;
  V.state.head = h;
  V.picked = true;
  all(V, ".ov button").forEach(function (b) {
    var on = +b.dataset.l === l && +b.dataset.h === h;
    b.setAttribute("aria-selected", on);
    b.tabIndex = on ? 0 : -1;
    if (on && focus) b.focus();
  });
  drawHead(V);
  tellAddress(V);
}
function startOverview(V) {
  var box = find(V, ".ovbox");
  box.addEventListener("click", function (e) { var b = e.target.closest("[data-h]"); if (b) pick(V, +b.dataset.l, +b.dataset.h, true); });
  box.addEventListener("keydown", function (e) {
    var step = STEPS[e.key];
    if (step) { e.preventDefault(); pick(V, V.state.layer + step[0], V.state.head + step[1], true); }
  });
}
