/* Picture view: where a token of a vision model looks, on the picture itself; patches that are not looked at fade. */
function drawPicture(V) {
  var P = V.data.picture, box = find(V, ".picbox"), l = layerOf(V), map = mapOf(V, stackOf(V), l, V.state.head, V.state.measure);
  var fits = P && sideOf(V, l, "k").patches && !map.pooled;
  box.hidden = !fits;
  /* Where the picture stands beside the map, the arcs go where there is room: beneath the small maps. */
  find(V, !fits ? ".side" : innerWidth > 760 ? ".ovpart" : ".mid").appendChild(find(V, ".arcbox"));
  if (!fits) return;
  var q = Math.min(V.state.q, map.rows - 1), n = P.rows * P.columns, row = map.values.subarray(q * map.columns + P.first, q * map.columns + P.first + n);
  var names = sideOf(V, l, "q"), own = sideOf(V, l, "q").patches, c = 320 / Math.max(P.rows, P.columns), W = P.columns * c, H = P.rows * c;
  var signed = MEASURES[V.state.measure].signed, size = 'width="' + W + '" height="' + H + '" preserveAspectRatio="none" href="', lines = '<path d="' + gridOf(P, c) + '" stroke="var(--page)" stroke-opacity=".45" stroke-width=".7"/>';
  var frames = (own && q >= P.first ? frame(P, q - P.first, c, "var(--focus)", 2.6) : "") + (V.state.k >= P.first ? frame(P, V.state.k - P.first, c, "var(--ink)", 1.4) : "");
  var picture = "<image " + size + "data:image/png;base64," + P.png + '"/>', over = "<image " + size + veil(V, P, row) + '"/>';
  /* What has a direction stands beside the picture: colours over colours could not be read. */
  find(V, ".pic").innerHTML = '<svg viewBox="0 0 ' + W + " " + H + '" role="img" tabindex="0" aria-label="' + esc(picLabel(V, P, row, names.names[q])) + '">' + picture + (signed ? "" : over) + lines + frames + "</svg>" +
    (signed ? '<svg viewBox="0 0 ' + W + " " + H + '" role="img" aria-label="The same patches in the colours of their effects"><rect width="' + W + '" height="' + H + '" fill="var(--zero)" stroke="var(--line)"/>' + over + lines + frames + "</svg>" : "");
  find(V, ".pict").innerHTML = "<span>Where " + tok(names.names[q]) + " looks</span>";
  find(V, ".picnote").textContent = (MEASURES[V.state.measure].signed ? "Blue patches raise the answer by being looked at, orange ones lower it; stronger is more, up to the largest here. " : "Clear patches are looked at, faded ones are not, relative to the largest here. ") + told(V, sumOf(row)) + " lies on patches." + (own ? " Choose a patch to see where it looks." : "");
  var first = names.special;
  find(V, ".picwho").innerHTML = first.map(function (i) { return '<button type="button" data-q="' + i + '" aria-pressed="' + (i === q) + '">' + tok(names.names[i]) + "</button>"; }).join("");
  all(V, ".picwho button").forEach(function (b) { b.onclick = function () { pin(V, +b.dataset.q, V.state.pinned ? V.state.k : -1); }; });
  if (own) all(V, ".pic svg").forEach(function (svg) { wirePicture(V, P, svg); });
}
function sumOf(row) { return row.reduce(function (a, v) { return a + v; }, 0); }
function picLabel(V, P, row, name) {
  var top = 0;
  row.forEach(function (v, i) { if (v > row[top]) top = i; });
  return "Picture of " + P.rows + " by " + P.columns + " patches. " + name + " looks most at the patch in row " + Math.floor(top / P.columns) + ", column " + top % P.columns + ", with " + told(V, row[top]) + ". Arrow keys choose the patch that looks.";
}
function frame(P, i, c, colour, width) {
  return '<rect x="' + (i % P.columns) * c + '" y="' + Math.floor(i / P.columns) * c + '" width="' + c + '" height="' + c + '" fill="none" stroke="' + colour + '" stroke-width="' + width + '"/>';
}
function gridOf(P, c) {
  var d = "";
  for (var r = 1; r < P.rows; r++) d += "M0 " + r * c + "H" + P.columns * c;
  for (var k = 1; k < P.columns; k++) d += "M" + k * c + " 0V" + P.rows * c;
  return d;
}
/* Paper over the patches, thinner where more is looked at; of effects, blue and orange over the picture. */
function veil(V, P, row) {
  var canvas = document.createElement("canvas"), by = 24, context = canvas.getContext("2d"), most = 0, signed = MEASURES[V.state.measure].signed;
  canvas.width = P.columns * by;
  canvas.height = P.rows * by;
  row.forEach(function (v) { most = Math.max(most, Math.abs(v)); });
  row.forEach(function (v, i) {
    var share = Math.abs(v) / (most || 1), c = signed ? (v < 0 ? V.shades.neg : V.shades.pos)[SHADES - 1] : V.shades.map[0];
    context.fillStyle = "rgba(" + c.join(",") + "," + (signed ? Math.sqrt(share) : 0.92 * (1 - share)).toFixed(3) + ")";
    context.fillRect((i % P.columns) * by, Math.floor(i / P.columns) * by, by, by);
  });
  return canvas.toDataURL();
}
function wirePicture(V, P, svg) {
  var choose = function (i, focus) {
    if (i < 0 || i >= P.rows * P.columns) return;
    pin(V, P.first + i, V.state.pinned ? V.state.k : -1);
    if (focus) find(V, ".pic svg").focus();
  };
  svg.onclick = function (e) {
    var r = svg.getBoundingClientRect();
    choose(Math.floor((e.clientY - r.top) / r.height * P.rows) * P.columns + Math.floor((e.clientX - r.left) / r.width * P.columns));
  };
  svg.onkeydown = function (e) {
    var step = STEPS[e.key], at = Math.max(0, V.state.q - P.first);
    if (step) { e.preventDefault(); choose(V.state.q < P.first ? 0 : at + step[0] * P.columns + step[1], true); }
  };
}
