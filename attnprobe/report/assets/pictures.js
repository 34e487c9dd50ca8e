/* Where tokens are patches: panels of the picture in the place of words, one a method, edges kept, never smooth. */
var PIC = $("pictures-data") && JSON.parse($("pictures-data").textContent), over = "beside";
function isPicture(index) { return !!(PIC && PIC.texts[index]); }
function picSrc(P) { return "data:image/png;base64," + P.png; }
/* Cells of one panel. values: shares, one a token; most: the share at which colour is full; m: the method, for notes. */
function picCells(P, values, signed, most, m, width) {
  var roomy = width / P.columns >= 27, h = "";
  for (var k = 0; k < P.rows * P.columns; k++) {
    var i = P.first + k, v = values[i], r = Math.round(100 * Math.abs(v)), c = Math.min(1, Math.sqrt(Math.abs(v) / (most || 1)));
    h += "<span" + (m == null ? "" : ' tabindex="-1" role="gridcell" data-m="' + m + '" data-i="' + i + '"') + ' class="c p ' + (signed ? "s" : "u") + (signed && v < 0 ? " m" : "") + '" style="--v:' + c.toFixed(3) + '">' +
      (roomy ? '<span class="n">' + (r === 0 ? "0" : (signed ? (v < 0 ? MINUS : "+") : "") + r) + "</span>" : "") + "</span>";
  }
  return h;
}
/* What lies on tokens that are no patches, such as [CLS]. */
function picRest(t, P, values, signed) {
  return t.tokens.slice(0, P.first).map(function (name, i) {
    return "<small>" + tok(name) + " " + (signed ? sgn(100 * values[i], 0) + NB + "%" : pc(values[i], 0)) + "</small>";
  }).join("");
}
function panel(index, values, signed, most, label, m) {
  var P = PIC.texts[index], t = D.texts[index], top = topOf(values, 3).map(function (i) { return t.tokens[i] + " " + (signed ? sgn(100 * values[i], 0) + NB + "%" : pc(values[i], 0)); }).join(", ");
  var width = phone() && !printing ? 150 : 210, name = m == null ? esc(label) : glyph(M[m]) + " " + esc(label) + "<small>" + esc(INFO[M[m]].sub) + "</small>";
  return '<figure class="pan"><figcaption>' + name + '</figcaption><div class="picbox ' + over + (signed ? "" : " uns") + '"><img class="under" alt="" src="' + picSrc(P) + '"><div class="pic" ' + (m == null ? 'role="img"' : 'role="grid"') + ' aria-label="' + esc(label + ": " + top) + '" style="grid-template-columns:repeat(' + P.columns + ",1fr);aspect-ratio:" + P.columns + "/" + P.rows + '">' +
    (m == null ? picCells(P, values, signed, most, m, width) : picRows(picCells(P, values, signed, most, m, width), P)) + '</div></div><div class="rest">' + picRest(t, P, values, signed) + "</div></figure>";
}
/* Cells of a grid stand in rows, for readers that are told so; the rows leave the layout alone. */
function picRows(cells, P) {
  var list = cells.split(/(?=<span tabindex)/), h = "";
  for (var r = 0; r < P.rows; r++) h += '<span role="row" class="prow">' + list.slice(r * P.columns, (r + 1) * P.columns).join("") + "</span>";
  return h;
}
function picItself(P) {
  return '<figure class="pan"><figcaption>The picture<small>as the model got it, ' + P.rows + " × " + P.columns + ' patches</small></figcaption><img class="pic itself" alt="The picture" src="' + picSrc(P) + '" style="aspect-ratio:' + P.columns + "/" + P.rows + '"><div class="rest"></div></figure>';
}
/* Full colour: the largest share of a patch under any of the methods, so that many small ones can be told apart. */
function picMost(t, ms) {
  var top = function (m) { return Math.max.apply(0, shares(t, m).slice(PIC.texts[now].first).map(Math.abs)); };
  return ms.map(top).reduce(function (a, b) { return Math.max(a, b); }, 0) || 1;
}
function picturePanels() {
  var t = text(), P = PIC.texts[now], ms = rowMethods(t), most = picMost(t, ms);
  $("rows").innerHTML = '<div class="pans">' + picItself(P) + ms.map(function (m) {
    return panel(now, shares(t, m), t.methods[m].signed, scale === "row" ? picMost(t, [m]) : most, INFO[m].label, M.indexOf(m));
  }).join("") + "</div>";
  var first = $("rows").querySelector(".c");
  if (first) first.tabIndex = 0;
  $("now").textContent = "";
}
function pictureStrip() {
  var t = text(), P = PIC.texts[now], up = firstOf(t, ["raw_attention", "rollout"], 0), down = firstOf(t, ["leave_one_out", "shapley_sampling", "occlusion", "integrated_gradients"], 1);
  var ms = [up, down].filter(Boolean), most = picMost(t, ms);
  $("strip").innerHTML = '<div class="pans few">' + picItself(P) + ms.map(function (m) { return panel(now, shares(t, m), t.methods[m].signed, most, INFO[m].label); }).join("") + "</div><figcaption>" +
    (up ? '<span style="--k:var(--wt)">' + INFO[up].inline + ": weight, no direction</span>" : "") +
    (down ? '<span style="--k:var(--pos)">argues for ' + esc(t.answer) + " (" + INFO[down].inline + ')</span><span style="--k:var(--neg)">argues against</span>' : "") + '<b style="font-weight:400">same scale, % of the method’s total size</b></figcaption>';
}
function pictureLegend() {
  var t = text(), most = picMost(t, rowMethods(t)), ticks = [0, 0.05, 0.25, 1], cell = function (v, kind, name) {
    return '<span><span class="c ' + kind + '" style="display:block;min-width:0;width:34px;height:16px;padding:0;--v:' + Math.sqrt(v).toFixed(3) + '"></span><small>' + name + "</small></span>";
  };
  var ramp = function (kind, sign) { return ticks.map(function (v) { return cell(v, kind, scale === "row" ? "" : (v ? sign : "") + fix(100 * v * most, 100 * most < 10 && v ? 1 : 0)); }).join(""); };
  $("leg").innerHTML = '<div><div>Against</div><div class="ramp">' + ramp("s m", MINUS) + '</div></div><div><div>For ' + esc(t.answer) + '</div><div class="ramp">' + ramp("s", "+") + '</div></div><div><div>No sign: weight</div><div class="ramp">' + ramp("u", "") +
    '</div></div><div style="max-width:33em">' + (scale === "row" ? "Each panel is coloured up to its own largest value; colours can be compared within a panel only." : "% of the method’s total size. Full colour: the largest share of a patch under any method.") + " Colour grows with the square root, so small values stay visible. Rows and columns are numbered from 0, as in the tables." + (over === "over" ? " Over the picture: without a sign, patches of little weight fade; with one, colour lies over the picture in grey." : "") + "</div>";
}
/* Arrow keys follow the picture: left, right, up, down within a panel. */
function pictureKeys(e) {
  var c = isPicture(now) && e.target.closest ? e.target.closest(".p") : null, P = PIC.texts[now];
  var step = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -1, ArrowDown: 1 }[e.key];
  if (!c || !step) return;
  e.preventDefault();
  e.stopImmediatePropagation();
  var k = +c.dataset.i - P.first, column = k % P.columns, across = e.key === "ArrowLeft" || e.key === "ArrowRight";
  if (across && (column + step < 0 || column + step >= P.columns)) return;
  var next = $("rows").querySelector('.p[data-m="' + c.dataset.m + '"][data-i="' + (P.first + k + (across ? step : step * P.columns)) + '"]');
  if (next) next.focus();
}
/* The switch that lays the panels over the picture stands beside that of the scale. */
function pictureSwitch() {
  var group = document.createElement("span");
  group.className = "seg only-pictures";
  group.setAttribute("role", "group");
  group.setAttribute("aria-label", "Where the panels lie");
  group.innerHTML = '<button type="button" data-over="beside" aria-pressed="true">Beside the picture</button><button type="button" data-over="over" aria-pressed="false">Over the picture</button>';
  document.querySelector("#text .ctrl .seg").insertAdjacentElement("afterend", group);
  switches("data-over", function (value) { over = value; picturePanels(); pictureLegend(); pictureStrip(); if (CF) cfStrip(); });
}
/* Small pictures beside the names of texts, which are all alike. */
function thumbnails() {
  all('a[href^="#text-"]').forEach(function (a) {
    var index = +a.getAttribute("href").slice(6) - 1;
    if (isPicture(index)) a.insertAdjacentHTML("afterbegin", '<img class="thumb" alt="" src="' + picSrc(PIC.texts[index]) + '">');
  });
}
/* What draws words draws panels where the chosen text is a picture. */
if (PIC) {
  var wordStrip = strip, wordRows = rows, wordLegend = legend;
  strip = function () { (isPicture(now) ? pictureStrip : wordStrip)(); };
  rows = function () { document.documentElement.classList.toggle("of-pictures", isPicture(now)); (isPicture(now) ? picturePanels : wordRows)(); };
  legend = function () { (isPicture(now) ? pictureLegend : wordLegend)(); };
  pictureSwitch();
  thumbnails();
  $("rows").addEventListener("keydown", pictureKeys, true);
}
