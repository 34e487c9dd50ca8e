/* Alignment: the answer's tokens down, the text's across, a map at a time; beside it, what each step owes to each token. */
var AL = $("alignment-data") && JSON.parse($("alignment-data").textContent), alMap = 0, alBy = 0, alAt = [0, 0];
function alShort(s, n) { return s.length > n ? s.slice(0, n - 1) + "…" : s; }
/* Sizes: cells as large as fit, names on the sides where there is room for them. */
function alFrame(f, wide) {
  var n = f.inputs.length, rows = f.outputs.length, ctx = ruler;
  ctx.font = "13px " + getComputedStyle(document.body).fontFamily;
  var widest = function (list) { return Math.ceil(Math.max.apply(0, list.map(function (s) { return ctx.measureText(alShort(s, 14)).width; }))); };
  var L = Math.max(f.beneath ? 48 : 0, widest(f.outputs) + 14), room = wide - L - 4, size = Math.max(5, Math.min(34, Math.floor(room / n)));
  var flat = size > 12 && widest(f.inputs) + 2 <= size, T = size < 12 ? 8 : flat ? 24 : widest(f.inputs) + 14;
  return { n: n, rows: rows, size: size, L: L, T: T, flat: flat, names: size >= 12, W: L + n * size + 4, high: size < 12 ? Math.max(8, size) : Math.min(26, size) };
}
/* Both maps side by side where cells stay large enough, else one beneath the other. */
var AL_GAP = 28, AL_BESIDE = 20;
function alFit(f) {
  var wide = printing ? PAPER : $("albox").clientWidth, half = alFrame(f, (wide - AL_GAP) / 2);
  return f.owes.length && half.size >= AL_BESIDE ? half : alFrame(f, wide);
}
function alCells(g, cells) {
  var h = "";
  for (var r = 0; r < g.rows; r++) for (var c = 0; c < g.n; c++) {
    var v = cells[r * g.n + c] / AL.parts;
    h += '<rect data-r="' + r + '" data-c="' + c + '" x="' + (g.L + c * g.size) + '" y="' + (g.T + r * g.high) + '" width="' + (g.size - (g.size > 7 ? 1 : 0)) + '" height="' + (g.high - (g.high > 7 ? 1 : 0)) +
      '" style="fill:color-mix(in oklab,var(--' + g.from + "),var(--" + (g.signed ? (v < 0 ? "neg" : "pos") : "map1") + ") " + (100 * Math.abs(v) / g.full).toFixed(1) + '%)"/>';
  }
  return h;
}
/* A ring in the cell of the token that a step owes most to. */
function alTops(g, tops) {
  return tops.map(function (c, r) {
    return c < 0 ? "" : '<circle cx="' + (g.L + (c + 0.5) * g.size - 0.5).toFixed(1) + '" cy="' + (g.T + (r + 0.5) * g.high - 0.5).toFixed(1) + '" r="' + Math.max(1.5, Math.min(4.5, g.size / 4)).toFixed(1) + '" class="altop"/>';
  }).join("");
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
function alSvg(f, g, cells, name, label, more, H) {
  return '<figure class="alfig"><figcaption>' + name + '</figcaption><svg viewBox="0 0 ' + g.W + " " + H + '" width="' + g.W + '" style="max-width:none"' + (g.signed ? "" : ' class="att" tabindex="0"') + ' role="img" aria-label="' + esc(label) + '"><rect x="' + (g.L - 1) + '" y="' + (g.T - 1) + '" width="' + (g.n * g.size + 1) + '" height="' + (g.rows * g.high + 1) + '" style="fill:var(--hair)"/>' + alCells(g, cells) + alNames(f, g) + more + '<rect class="ring" style="fill:none" stroke="var(--focus)" stroke-width="2"/></svg></figure>';
}
function alDraw() {
  var f = AL.texts[now], box = $("albox");
  $("almap").parentNode.hidden = !f;
  if (!f) { box.innerHTML = '<p class="note">This text’s alignment is not on the page: there is none, or the texts before it fill it.</p>'; $("alnow").textContent = $("alkey").textContent = ""; return; }
  alMap = Math.min(alMap, f.maps.length - 1);
  alBy = Math.max(0, Math.min(alBy, f.owes.length - 1));
  var g = alFit(f), m = f.maps[alMap], o = f.owes[alBy], beneath = alBeneath(f, g), H = g.T + g.rows * g.high + 4, low = H + (beneath ? 64 : 0), said = alSaid(m);
  $("almap").innerHTML = f.maps.map(function (x, k) { return '<option value="' + k + '"' + (k === alMap ? " selected" : "") + ">" + esc(x.name[0].toUpperCase() + x.name.slice(1)) + (k === 0 && f.maps.length > 1 ? ", the best head" : "") + "</option>"; }).join("");
  $("alby").innerHTML = f.owes.map(function (x, k) { return '<option value="' + k + '"' + (k === alBy ? " selected" : "") + ">" + esc(x.name) + "</option>"; }).join("");
  $("alby").hidden = $("alby").previousElementSibling.hidden = f.owes.length < 2;
  $("alsaid").textContent = said;
  g.from = "map0"; g.full = 1;
  var most = o ? Math.max(1, Math.max.apply(0, o.cells.map(Math.abs))) / AL.parts : 1;
  box.innerHTML = alSvg(f, g, m.cells, "Where it looks: attention, " + esc(m.name), "Alignment by " + m.name + ": " + said + ". Arrow keys go from cell to cell.", (o ? alTops(g, o.tops) : "") + (o ? "" : beneath), o ? H : low) +
    (o ? alSvg(f, Object.assign({}, g, { from: "zero", full: most, signed: 1 }), o.cells, "What each step owes to each token: " + esc(o.inline), o.name + " of each step. The values stand beneath the maps while a cell of the first is chosen.", beneath, low) : "");
  box.frame = g;
  $("alkey").innerHTML = (o ? '<svg class="g" viewBox="0 0 12 12" width="12" height="12" aria-hidden="true"><circle cx="6" cy="6" r="4" class="altop"/></svg>the token that the step owes most to, by ' + esc(o.inline) + ". Blue raises the step’s log-probability, orange lowers it, each in parts of the row’s sum of sizes, " + pc(most, 0) + " at full colour. " : "") +
    (beneath ? "Beneath: what taking a token away, or its like, does to the whole answer (" + esc(INFO[f.beneath].inline) + "): blue argues for it, orange against" : "");
  alMark(null);
}
function alSaid(m) {
  var b = m.beside[alBy], by = b && AL.texts[now].owes[alBy].inline;
  return (m.monotonicity == null ? "" : "forward in " + pc(m.monotonicity, 0) + " of the steps, ") + "covered " + pc(m.coverage, 0) +
    (b && b[1] ? "; same top token as " + by + " at " + b[0] + " of " + b[1] + " steps, τ " + sgn(b[2], 2) : "");
}
function alMark(at) {
  var f = AL.texts[now], box = $("albox"), g = box.frame, o = f && f.owes[alBy];
  if (!f || !box.querySelector(".ring")) return;
  if (at) alAt = at;
  all(".ring", box).forEach(function (ring) {
    ring.setAttribute("width", at ? g.size + 1 : 0);
    if (!at) return;
    ring.setAttribute("x", g.L + at[1] * g.size - 1); ring.setAttribute("y", g.T + at[0] * g.high - 1);
    ring.setAttribute("height", g.high + 1);
  });
  $("alnow").innerHTML = !at ? "Point at a cell, or focus the map and use the arrow keys." : (f.written ? "Writing " : "Behind ") + tok(f.outputs[at[0]]) + ", " + pc(f.maps[alMap].cells[at[0] * g.n + at[1]] / AL.parts) + " of the attention lies on " + tok(f.inputs[at[1]]) + " (token " + (at[1] + 1) + ")" +
    (o ? "; of what the step owes to the text by " + esc(o.inline) + ", it has " + alShare(o.cells[at[0] * g.n + at[1]] / AL.parts) + (o.tops[at[0]] < 0 ? "; no single one moves this step by a hundredth of its probability" : ", and " + tok(f.inputs[o.tops[at[0]]]) + " the most, " + sgn(o.most[at[0]], 3) + " nats") : "");
}
function alShare(v) { return (v > 0 ? "+" : "") + pc(v); }
function startAlignment() {
  var box = $("albox"), of = function (e) { return e.target.dataset && e.target.dataset.r != null ? [+e.target.dataset.r, +e.target.dataset.c] : null; };
  listeners.push(alDraw);
  $("almap").onchange = function () { alMap = +this.value; alDraw(); };
  $("alby").onchange = function () { alBy = +this.value; alDraw(); };
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
