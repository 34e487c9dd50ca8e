/* Head view: arcs between tokens; one column where queries and keys are the same tokens, else two. */
var ARC_STEP = 19, MOST_ARCS = 400, COLUMN = 40, ARC_ROWS = 512;
/* The arcs of the head as shown: the strongest 2 a token, as far as the threshold lets them: [q, k, number]. */
function arcList(V) {
  var map = V.map, s = stackOf(V), l = layerOf(V), list = [], count = 0, low = V.state.threshold, most = map.range.most;
  var put = function (q, k, v) { if (v !== 0 && Math.abs(v) >= low * most) list.push([q, k, v]); };
  if (map.pooled) {
    var top = topOf(V, s, l, V.state.head, V.state.measure), without = V.state.special !== "shown";
    var out = function (side, i) { return without && sideOf(V, l, side).special.indexOf(i) >= 0; };
    if (!top) return null;
    top.forEach(function (row, q) { row.forEach(function (p) { if (!out("q", q) && !out("k", p[0])) put(q, p[0], p[1]); }); });
  } else {
    map.rows.forEach(function (q, i) { map.columns.forEach(function (k, j) { put(q, k, map.values[i * map.columns.length + j]); }); });
  }
  count = list.length;
  return { all: list, count: count };
}
function oneColumn(V) {
  var l = layerOf(V);
  return stackOf(V).kind === "self" && l.q === l.k && V.state.columns !== "two";
}
function drawArcs(V) {
  var box = find(V, ".arc"), found = arcList(V), l = layerOf(V), one = oneColumn(V), Q = sideOf(V, l, "q").names, K = sideOf(V, l, "k").names;
  find(V, ".cols").hidden = stackOf(V).kind !== "self" || l.q !== l.k;
  find(V, ".arcbox").hidden = !found || Math.max(Q.length, K.length) > ARC_ROWS;
  if (find(V, ".arcbox").hidden) return;
  var rows = rowsOf(V, "q", Q), columns = one ? rows : rowsOf(V, "k", K), limit = Math.min(MOST_ARCS, 2 * Math.max(rows.list.length, columns.list.length));
  var list = found.all.filter(function (a) { return !one || a[0] !== a[1]; }).sort(function (a, b) { return Math.abs(b[2]) - Math.abs(a[2]); });
  var self = found.count - list.length, drawn = list.slice(0, limit);
  V.arcs = { list: list, drawn: drawn, rows: rows, columns: columns, one: one, Q: Q, K: K, at: null };
  var n = Math.max(rows.list.length, columns.list.length), W = one ? 214 : 244, H = n * ARC_STEP + 6;
  var label = "Arcs of layer " + l.layer + ", head " + headOf(V).head + ": the " + drawn.length + " strongest of " + list.length + ". Up and down go through the " + unitOf(V, "q", true) + ".";
  box.innerHTML = '<svg viewBox="0 0 ' + W + " " + H + '" width="' + W + '" role="img" tabindex="0" aria-label="' + esc(label) + '"><g class="paths"></g>' + arcWords(V.arcs, W) + "</svg>";
  find(V, ".arcs").textContent = (one ? "Right: looks forward. Left: looks back. " : "Left: the " + unitOf(V, "q") + " that looks. Right: the " + unitOf(V, "k") + " looked at. ") +
    (drawn.length < list.length ? "The " + drawn.length + " strongest of " + list.length + ", from " + told(V, Math.abs((drawn[drawn.length - 1] || [0, 0, 0])[2])) + "." : drawn.length ? "All " + drawn.length + "." : "None is left.") +
    (self && one ? " A " + unitOf(V, "q") + "’s look at itself has no arc." : "");
  paths(V, drawn);
  wireArcs(V, box.firstChild);
}
/* Tokens of one side that are shown, and the line of each. */
function rowsOf(V, which, names) {
  var special = V.state.special === "shown" ? [] : sideOf(V, layerOf(V), which).special, line = {};
  var list = names.map(function (_, i) { return i; }).filter(function (i) { return special.indexOf(i) < 0; });
  list.forEach(function (i, at) { line[i] = at; });
  return { list: list, line: line };
}
function arcWords(A, W) {
  var words = function (rows, names, x, anchor, which) {
    return rows.list.map(function (i, at) { return '<text x="' + x + '" y="' + (at * ARC_STEP + 16) + '" text-anchor="' + anchor + '" data-' + which + '="' + i + '">' + esc(clip(names[i], 12)) + "</text>"; }).join("");
  };
  return A.one ? words(A.rows, A.Q, W / 2, "middle", "q") : words(A.rows, A.Q, 84, "end", "q") + words(A.columns, A.K, W - 84, "start", "k");
}
function paths(V, list) {
  var A = V.arcs, h = "", largest = 0, least = Infinity, thin = list.length > 120 ? 0.5 : 1;
  list.forEach(function (a) { largest = Math.max(largest, Math.abs(a[2])); least = Math.min(least, Math.abs(a[2])); });
  if (least > 0.95 * largest) least = 0;
  list.slice().reverse().forEach(function (a) {
    var share = (Math.abs(a[2]) - 0.8 * least) / (largest - 0.8 * least || 1), y1 = A.rows.line[a[0]] * ARC_STEP + 12, y2 = A.columns.line[a[1]] * ARC_STEP + 12, d;
    if (A.one) {
      var way = a[1] > a[0] ? 1 : -1, x = 107 + way * 42, bend = x + way * Math.min(8 + Math.abs(y1 - y2) / 6, 62) * 1.25;
      d = "M" + x + " " + y1 + "C" + bend + " " + y1 + " " + bend + " " + y2 + " " + x + " " + y2;
    } else d = "M90 " + y1 + "C122 " + y1 + " 122 " + y2 + " 154 " + y2;
    var colour = MEASURES[V.state.measure].signed ? (a[2] < 0 ? "var(--neg)" : "var(--pos)") : "var(--mute)";
    h += '<path data-a="' + a[0] + '" data-b="' + a[1] + '" d="' + d + '" fill="none" stroke="' + colour + '" stroke-opacity="' + (thin * (0.2 + 0.75 * share)).toFixed(2) + '" stroke-width="' + (0.6 + 3.6 * thin * share).toFixed(1) + '"/>';
  });
  find(V, ".paths").innerHTML = h;
}
/* A token under the pointer or chosen by keys: its arcs alone, with the strongest in words. */
function followArc(V, which, i) {
  var A = V.arcs;
  all(V, ".arc text").forEach(function (t) { t.classList.toggle("on", i != null && t.dataset[which] === String(i)); });
  if (i == null) { find(V, ".anow").textContent = ""; paths(V, A.drawn); return; }
  var side = which === "k" ? 1 : 0, mine = A.list.filter(function (a) { return a[side] === i; }).slice(0, 24);
  paths(V, A.one ? mine.concat(A.drawn.filter(function (a) { return a[1] === i && a[0] !== i; })) : mine);
  var words = mine.slice(0, 3).map(function (a) { return tok((side ? A.Q : A.K)[a[1 - side]]) + " " + told(V, a[2]); });
  find(V, ".anow").innerHTML = "<b>" + tok((side ? A.K : A.Q)[i]) + "</b> " + (side ? "is looked at by " : "looks at ") + (words.join(", ") || "nothing that is shown");
}
function wireArcs(V, svg) {
  var tokenOf = function (e) { return e.target.closest("text"); };
  svg.onmouseover = function (e) { var t = tokenOf(e); if (t) followArc(V, t.dataset.k == null ? "q" : "k", +(t.dataset.k || t.dataset.q)); };
  svg.onmouseleave = function () { followArc(V, "q", null); };
  svg.onblur = function () { V.arcs.at = null; followArc(V, "q", null); };
  svg.onkeydown = function (e) {
    var step = e.key === "ArrowDown" ? 1 : e.key === "ArrowUp" ? -1 : 0, A = V.arcs, list = A.rows.list;
    if (!step || !list.length) return;
    e.preventDefault();
    A.at = Math.max(0, Math.min(list.length - 1, A.at == null ? 0 : A.at + step));
    followArc(V, "q", list[A.at]);
  };
}
