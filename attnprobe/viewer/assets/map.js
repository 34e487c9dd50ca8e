/* Map view: one head, a row a token that looks, a column a token looked at; any cell can be read. */
var LABELLED = 40;
/* A few pixels a cell, so that edges stay sharp when the picture is stretched or printed. */
function pictureOf(V, map) {
  var by = Math.max(1, Math.min(16, Math.floor(640 / Math.max(map.rows.length, map.columns.length))));
  var low = V.state.threshold, keep = low > 0 ? function (v) { return Math.abs(v) >= low * map.range.most; } : null;
  return paint(document.createElement("canvas"), map.rows.length, map.columns.length, map.values, colourOf(V, V.state.measure, map.range), by, keep).toDataURL();
}
function ruler(V) {
  if (!V.ruler) { V.ruler = document.createElement("canvas").getContext("2d"); V.ruler.font = "450 12px " + getComputedStyle(V.host).fontFamily; }
  return function (words) { return Math.max.apply(0, words.map(function (w) { return V.ruler.measureText(clip(w, 14)).width; })); };
}
/* Where labels and cells go: c pixels a cell, LW and TH for the labels; none where there are too many. */
function layout(V, map, Q, K) {
  var n = Math.max(map.rows.length, map.columns.length), labelled = n <= LABELLED, width = ruler(V);
  var c = labelled ? (map.columns.length > 26 ? 13 : map.columns.length > 14 ? 16 : map.columns.length > 8 ? 20 : 26) : Math.max(1, Math.min(8, 560 / n));
  var LW = labelled ? Math.ceil(Math.min(110, 14 + width(Q))) : 0, TH = labelled ? Math.ceil(0.88 * Math.min(110, 14 + width(K))) + 6 : 0;
  return { c: c, LW: LW, TH: TH, W: LW + map.columns.length * c + (labelled ? 34 : 0), H: TH + map.rows.length * c, labelled: labelled };
}
function drawMap(V) {
  var map = (V.map = shown(V)), l = layerOf(V), d = headOf(V), box = find(V, ".map");
  var full = mapOf(V, stackOf(V), l, V.state.head, V.state.measure);
  map.Q = namesOf(V, "q", map.rows, full.rows);
  map.K = namesOf(V, "k", map.columns, full.columns);
  map.range = rangeOf(V, map.values);
  find(V, ".mapt").textContent = "Layer " + l.layer + ", head " + d.head;
  find(V, ".maps").innerHTML = mapWords(V, l, map, full);
  find(V, ".mapleg").innerHTML = legend(V, map);
  if (!map.rows.length || !map.columns.length) { box.innerHTML = '<p class="note">All tokens here are special ones.</p>'; return; }
  var at = layout(V, map, map.Q, map.K), c = at.c, h = "";
  map.at = at;
  if (at.labelled) {
    map.Q.forEach(function (w, q) { h += '<text x="' + (at.LW - 6) + '" y="' + (at.TH + q * c + c / 2 + 4) + '" text-anchor="end" data-q="' + q + '">' + esc(clip(w, 14)) + "</text>"; });
    map.K.forEach(function (w, k) { h += '<text transform="translate(' + (at.LW + k * c + c / 2 + 4) + "," + (at.TH - 6) + ') rotate(-60)" data-k="' + k + '">' + esc(clip(w, 14)) + "</text>"; });
  }
  var size = 'width="' + map.columns.length * c + '" height="' + map.rows.length * c + '"', spot = ' x="' + at.LW + '" y="' + at.TH + '" ';
  box.innerHTML = '<svg viewBox="0 0 ' + at.W + " " + at.H + '" style="max-width:' + Math.round(1.35 * at.W) + 'px" role="img" tabindex="0" aria-label="' + esc(mapLabel(map, l, d)) + '"><image' + spot + size + ' preserveAspectRatio="none" href="' + pictureOf(V, map) + '"/><rect' + spot + size + ' fill="none" stroke="var(--line)"/><rect class="cur" width="' + c + '" height="' + c + '" fill="none" stroke="var(--focus)" stroke-width="2.2" vector-effect="non-scaling-stroke"/></svg>';
  box.firstChild.insertAdjacentHTML("beforeend", h);
  wireMap(V, box.firstChild);
  pin(V, V.state.q, V.state.pinned ? V.state.k : -1);
}
function mapWords(V, l, map, full) {
  var Q = sideOf(V, l, "q").names.length, K = sideOf(V, l, "k").names.length, words = "Row: the " + unitOf(V, "q") + " that looks. Column: the " + unitOf(V, "k") + " looked at.";
  if (map.pooled) words += " Averaged over blocks, " + Q + " × " + K + " " + unitOf(V, "k", true) + " in " + full.rows + " × " + full.columns + " squares" + (map.full ? "." : "; arcs show the largest weights of single " + unitOf(V, "k", true) + ".");
  if (!map.pooled && V.state.special === "hidden") words += " Special tokens left out; the numbers are as they are, so that rows add up to less.";
  if (!map.pooled && V.state.special === "shares") words += MEASURES[V.state.measure].signed ? " Special tokens left out; effects are not stretched." : " Special tokens left out; what is left of each row is stretched to its sum.";
  return words;
}
function mapLabel(map, l, d) {
  var top = 0, n = map.columns.length;
  for (var k = 0; k < n; k++) if (map.values[k] > map.values[top]) top = k;
  return "Attention map, layer " + l.layer + ", head " + d.head + ": " + map.rows.length + " by " + n + (map.pooled ? " blocks" : " weights") + ". " + map.Q[0] + " looks most at " + map.K[top] + ". Arrow keys read single cells.";
}
function wireMap(V, svg) {
  var cellOf = function (e) {
    var r = svg.getBoundingClientRect(), at = V.map.at, x = (e.clientX - r.left) / r.width * at.W - at.LW, y = (e.clientY - r.top) / r.height * at.H - at.TH;
    var q = Math.floor(y / at.c), k = Math.floor(x / at.c);
    return q >= 0 && k >= 0 && q < V.map.rows.length && k < V.map.columns.length ? [q, k] : null;
  };
  svg.onmousemove = function (e) { var c = cellOf(e); if (c) mark(V, c[0], c[1]); };
  svg.onmouseleave = function () { mark(V, V.map.q, V.map.k); };
  svg.onclick = function (e) { var c = cellOf(e); if (c) pin(V, V.map.rows[c[0]], V.map.columns[c[1]], true); };
  svg.onkeydown = function (e) {
    var step = STEPS[e.key], q, k;
    if (!step) return;
    e.preventDefault();
    q = V.map.q + step[0];
    k = V.map.k + step[1];
    if (q >= 0 && k >= 0 && q < V.map.rows.length && k < V.map.columns.length) pin(V, V.map.rows[q], V.map.columns[k], true);
  };
}
/* The frame on a cell, and its number in words. */
function mark(V, q, k) {
  var map = V.map, at = map.at, cur = find(V, ".cur"), v = map.values[q * map.columns.length + k];
  cur.setAttribute("x", at.LW + k * at.c);
  cur.setAttribute("y", at.TH + q * at.c);
  all(V, ".map text").forEach(function (x) { x.classList.toggle("on", x.dataset.q === String(q) || x.dataset.k === String(k)); });
  var said = V.state.measure === "weight" ? " with " + pc(v) + (map.pooled ? " of its weight a " + unitOf(V, "k") + ", on average" : " of its weight") : ": " + MEASURES[V.state.measure].told + " " + told(V, v);
  find(V, ".mnow").innerHTML = "<b>" + tok(map.Q[q]) + "</b> looks at <b>" + tok(map.K[k]) + "</b>" + said;
}
/* A cell is shown: by the numbers of its tokens (or blocks). One that was chosen stays from head to head; what is
   filtered out gives way to the first row, the largest key. */
function pin(V, row, column, chosen) {
  var map = V.map, q = Math.max(0, map.rows.indexOf(row)), n = map.columns.length, k = map.columns.indexOf(column);
  if (k < 0) for (var j = (k = 0); j < n; j++) if (Math.abs(map.values[q * n + j]) > Math.abs(map.values[q * n + k])) k = j;
  map.q = q;
  map.k = k;
  V.state.q = map.rows[q];
  V.state.k = map.columns[k];
  V.state.pinned = V.state.pinned || chosen;
  mark(V, q, k);
  drawCell(V);
  drawPicture(V);
}
