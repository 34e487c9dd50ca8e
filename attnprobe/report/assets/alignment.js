/* Alignment: the answer's tokens down, the text's across, a map at a time; beneath, what each token does. */
var AL = $("alignment-data") && JSON.parse($("alignment-data").textContent), alMap = 0, alAt = [0, 0];
function alShort(s, n) { return s.length > n ? s.slice(0, n - 1) + "…" : s; }
/* Sizes: cells as large as fit, names on the sides where there is room for them. */
function alFrame(f) {
  var n = f.inputs.length, rows = f.outputs.length, box = $("albox"), ctx = ruler;
  ctx.font = "13px " + getComputedStyle(document.body).fontFamily;
  var widest = function (list) { return Math.ceil(Math.max.apply(0, list.map(function (s) { return ctx.measureText(alShort(s, 14)).width; }))); };
  var L = Math.max(f.beneath ? 48 : 0, widest(f.outputs) + 14), room = (printing ? PAPER : box.clientWidth) - L - 4, size = Math.max(5, Math.min(34, Math.floor(room / n)));
  var flat = size > 12 && widest(f.inputs) + 2 <= size, T = size < 12 ? 8 : flat ? 24 : widest(f.inputs) + 14;
  return { n: n, rows: rows, size: size, L: L, T: T, flat: flat, names: size >= 12, W: L + n * size + 4, high: size < 12 ? Math.max(8, size) : Math.min(26, size) };
}
function alCells(f, g, m) {
  var h = "";
  for (var r = 0; r < g.rows; r++) for (var c = 0; c < g.n; c++) {
    var v = m.cells[r * g.n + c] / AL.parts;
    h += '<rect data-r="' + r + '" data-c="' + c + '" x="' + (g.L + c * g.size) + '" y="' + (g.T + r * g.high) + '" width="' + (g.size - (g.size > 7 ? 1 : 0)) + '" height="' + (g.high - (g.high > 7 ? 1 : 0)) +
      '" style="fill:color-mix(in oklab,var(--map0),var(--map1) ' + (100 * v).toFixed(1) + '%)"/>';
  }
  return h;
}
function alNames(f, g) {
  var h = f.outputs.map(function (s, r) {
    return g.high >= 12 || r % 3 === 0 ? '<text x="' + (g.L - 8) + '" y="' + (g.T + r * g.high + g.high / 2 + 4.5) + '" text-anchor="end" class="al' + (f.position === r ? " on" : "") + '">' + esc(alShort(s, 14)) + "</text>" : "";
  }).join("");
  if (!g.names) return h;
  return h + f.inputs.map(function (s, c) {
    var x = g.L + c * g.size + g.size / 2;
    return g.flat ? '<text class="al" x="' + x + '" y="' + (g.T - 8) + '" text-anchor="middle">' + esc(alShort(s, 14)) + "</text>"
      : '<text class="al" transform="translate(' + (x + 4.5) + " " + (g.T - 6) + ') rotate(-90)">' + esc(alShort(s, 14)) + "</text>";
  }).join("");
}
/* Beneath: what each token does to the whole answer, by one method. */
function alBeneath(f, g) {
  var t = text(), m = f.beneath;
  if (!m || !t.methods[m]) return "";
  var sh = shares(t, m), most = Math.max.apply(0, sh.map(Math.abs)) || 1, y = g.T + g.rows * g.high + 12, H = 26;
  return '<text x="' + (g.L - 8) + '" y="' + (y + H + 4) + '" text-anchor="end" class="al q">effect</text><path d="M' + g.L + " " + (y + H) + "H" + (g.L + g.n * g.size) + '" stroke="var(--line)"/>' + sh.map(function (v, c) {
    var h = v === 0 ? 0 : Math.max(1, H * Math.abs(v) / most), w = Math.max(2, g.size - 6);
    return '<rect x="' + (g.L + c * g.size + (g.size - w) / 2).toFixed(1) + '" y="' + (y + (v < 0 ? H : H - h)).toFixed(1) + '" width="' + w + '" height="' + h.toFixed(1) + '" style="fill:var(--' + (v < 0 ? "neg" : "pos") + ')"/>';
  }).join("");
}
function alDraw() {
  var f = AL.texts[now], box = $("albox");
  $("almap").parentNode.hidden = !f;
  if (!f) { box.innerHTML = '<p class="note">This text’s alignment is not on the page: there is none, or the texts before it fill it.</p>'; $("alnow").textContent = $("alkey").textContent = ""; return; }
  alMap = Math.min(alMap, f.maps.length - 1);
  var g = alFrame(f), m = f.maps[alMap], beneath = alBeneath(f, g), H = g.T + g.rows * g.high + (beneath ? 68 : 4), said = alSaid(m);
  $("almap").innerHTML = f.maps.map(function (x, k) { return '<option value="' + k + '"' + (k === alMap ? " selected" : "") + ">" + esc(x.name[0].toUpperCase() + x.name.slice(1)) + (k === 0 && f.maps.length > 1 ? ", the best head" : "") + "</option>"; }).join("");
  $("alsaid").textContent = said;
  box.innerHTML = '<svg viewBox="0 0 ' + g.W + " " + H + '" width="' + g.W + '" style="max-width:none" tabindex="0" role="img" aria-label="' + esc("Alignment by " + m.name + ": " + said + ". Arrow keys go from cell to cell.") + '"><rect x="' + (g.L - 1) + '" y="' + (g.T - 1) + '" width="' + (g.n * g.size + 1) + '" height="' + (g.rows * g.high + 1) + '" style="fill:var(--hair)"/>' + alCells(f, g, m) + alNames(f, g) + beneath + '<rect class="ring" style="fill:none" stroke="var(--focus)" stroke-width="2"/></svg>';
  box.frame = g;
  $("alkey").innerHTML = beneath ? "Beneath: what taking a token away, or its like, does to the whole answer (" + esc(INFO[f.beneath].inline) + "): blue argues for it, orange against" : "";
  alMark(null);
}
function alSaid(m) { return (m.monotonicity == null ? "" : "forward in " + pc(m.monotonicity, 0) + " of the steps, ") + "covered " + pc(m.coverage, 0); }
function alMark(at) {
  var f = AL.texts[now], box = $("albox"), ring = box.querySelector(".ring"), g = box.frame;
  if (!f || !ring) return;
  if (at) {
    alAt = at;
    ring.setAttribute("x", g.L + at[1] * g.size - 1); ring.setAttribute("y", g.T + at[0] * g.high - 1);
    ring.setAttribute("width", g.size + 1); ring.setAttribute("height", g.high + 1);
  } else ring.setAttribute("width", 0);
  $("alnow").innerHTML = !at ? "Point at a cell, or focus the map and use the arrow keys." : (f.written ? "Writing " : "Behind ") + tok(f.outputs[at[0]]) + ", " + pc(f.maps[alMap].cells[at[0] * g.n + at[1]] / AL.parts) + " of the attention lies on " + tok(f.inputs[at[1]]) + " (token " + (at[1] + 1) + ")";
}
function startAlignment() {
  var box = $("albox"), of = function (e) { return e.target.dataset && e.target.dataset.r != null ? [+e.target.dataset.r, +e.target.dataset.c] : null; };
  listeners.push(alDraw);
  $("almap").onchange = function () { alMap = +this.value; alDraw(); };
  box.addEventListener("mouseover", function (e) { if (of(e)) alMark(of(e)); });
  box.addEventListener("mouseleave", function () { alMark(null); });
  box.addEventListener("focusin", function () { alMark([Math.min(alAt[0], box.frame.rows - 1), Math.min(alAt[1], box.frame.n - 1)]); });
  box.addEventListener("focusout", function () { alMark(null); });
  box.addEventListener("keydown", function (e) {
    var step = { ArrowDown: [1, 0], ArrowUp: [-1, 0], ArrowRight: [0, 1], ArrowLeft: [0, -1] }[e.key], g = box.frame;
    if (!step || !g) return;
    e.preventDefault();
    alMark([Math.max(0, Math.min(g.rows - 1, alAt[0] + step[0])), Math.max(0, Math.min(g.n - 1, alAt[1] + step[1]))]);
  });
  var wide = innerWidth;
  addEventListener("resize", function () { if (innerWidth !== wide) { wide = innerWidth; alDraw(); } });
}
if (AL) startAlignment();
