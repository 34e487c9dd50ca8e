/* Another attention with the same answer: two strips over the words on one scale, two numbers, a dot a text. */
var CF = $("counterfactual-data") && JSON.parse($("counterfactual-data").textContent), cfAt = null;
function cfStrip() {
  var t = text(), f = CF.texts[now], box = $("cfstrip");
  if (!f) { box.innerHTML = '<p class="note">No other attention could be looked for on this ' + NOUN.text + '; the reason is under Methods.</p>'; return; }
  var most = Math.max.apply(0, f.own.concat(f.other)) || 1, long = t.tokens.length > WORDS_AT_MOST;
  var top = function (row) { return topOf(row, 3).map(function (i) { return t.tokens[i] + " " + pc(row[i], 0); }).join(", "); };
  var label = isPicture(now) ? "" : ' role="img" aria-label="' + esc("The model’s own attention above each word: " + top(f.own) + ". Another attention below: " + top(f.other) + ".") + '"';
  box.innerHTML = '<div class="ln"' + label + ">" +
    (cfPanels(t, f, most) || (long ? cfBars(t, f, most) : cfWords(t, f, most))) + "</div><figcaption>" + (isPicture(now) ? "" : '<span class="own">above: the model’s own attention</span><span class="oth">below: another attention</span>') + '<b style="font-weight:400">same scale, % of the weight</b></figcaption>';
  var cells = all(".k", box);
  if (cells.length && cells[0].offsetTop !== cells[cells.length - 1].offsetTop) box.firstChild.insertAdjacentHTML("beforeend", '<span style="flex:1000 1 0"></span>');
}
/* Two pictures where tokens are patches. */
function cfPanels(t, f, most) {
  return isPicture(now) ? panel(now, f.own, 0, most, "The model’s own attention") + panel(now, f.other, 0, most, "Another attention") : "";
}
function cfWords(t, f, most) {
  var px = function (v) { return v === 0 ? 0 : Math.max(1, Math.round(54 * v / most)); };
  var said = function (v) { var r = Math.round(100 * v); return r ? "<small>" + r + "</small>" : ""; };
  return t.tokens.map(function (w, i) {
    return '<span class="k"><span class="a">' + said(f.own[i]) + '<i style="height:' + px(f.own[i]) + 'px"></i></span><span class="w' + (t.special[i] ? " sp" : "") + '">' + tok(w) +
      '</span><span class="r"><i style="height:' + px(f.other[i]) + 'px"></i>' + said(f.other[i]) + "</span></span>";
  }).join("");
}
/* A long text: a bar a token, the highest named. */
function cfBars(t, f, most) {
  var W = Math.max(300, printing ? PAPER : $("cfstrip").clientWidth), n = t.tokens.length, step = W / n, H = 54, y = 20 + H;
  var bars = function (row, side, paint) { return '<path d="' + barsOf(row, step, y, side, H / most) + '" ' + paint + "/>"; };
  var names = function (row, at) { return namesOf(t, row, at, W, step); };
  return '<svg class="long" viewBox="0 0 ' + W + " " + (y + H + 20) + '" width="' + W + '">' + bars(f.own, -1, 'fill="var(--bandline)"') + names(f.own, 12) +
    bars(f.other, 1, 'fill="none" stroke="var(--ink)" stroke-width=".8"') + names(f.other, y + H + 16) + '<path d="M0 ' + y + "H" + W + '" stroke="var(--line)"/></svg>';
}
function cfNumbers() {
  var f = CF.texts[now], t = text(), p = f && f.probability, cell = function (q, v, small, said) {
    return '<div class="num"><div class="q">' + q + '</div><div class="v">' + v + " <small>" + small + "</small></div><p>" + said + "</p></div>";
  };
  $("cfnums").hidden = !f;
  if (!f) return;
  var moved = fix(Math.abs(f.value[1] - f.value[0]), 3), value = +moved ? (f.value[1] < f.value[0] ? "fell" : "rose") + " by " + moved + " " + esc(t.unit) : "stayed", what = t.answer ? "Probability of " + esc(t.answer) : "Probability";
  $("cfnums").innerHTML = cell("How far was attention moved?", pc(f.moved, 0), "of the weight is on other " + CF.word, "Jensen-Shannon divergence " + f.jsd.toFixed(2) + ", of at most " + CF.jsd_most.toFixed(2) + ".") +
    (p[0] == null ? cell("How far did the answer move?", sgn(f.value[1] - f.value[0], 3), esc(t.unit), "From " + sgn(f.value[0], 3) + " to " + sgn(f.value[1], 3) + ".")
      : cell("How far did the answer move?", sgn(100 * (p[1] - p[0]), 1), "points", what + ": from " + pc(p[0]) + " to " + pc(p[1]) + "; the explained number " + value + (f.kept ? "." : ", and the decision changed.")));
}
/* A dot a text: across how far attention was moved, up how far the answer was. */
function cfPlot() {
  var box = $("cfplot");
  if (!box) return;
  var W = Math.max(280, Math.min(560, box.clientWidth)), H = 250, L = 34, R = 14, T = 10, B = 40;
  var high = CF.eps || 0.01, X = function (v) { return L + (W - L - R) * v; }, Y = function (v) { return T + (H - T - B) * (1 - Math.min(1.04, v / high)); };
  var h = [0, 0.25, 0.5, 0.75, 1].map(function (v) { return '<path d="M' + X(v) + " " + T + "V" + (H - B) + '" stroke="var(--hair)"/><text x="' + X(v) + '" y="' + (H - B + 17) + '" text-anchor="middle">' + 100 * v + "</text>"; }).join("") +
    [0, 0.5, 1].map(function (s) { return '<path d="M' + L + " " + Y(s * high) + "H" + (W - R) + '" stroke="var(--' + (s ? "hair" : "bandline") + ')"/><text x="' + (L - 7) + '" y="' + (Y(s * high) + 4) + '" text-anchor="end">' + (CF.outputs ? fix(100 * s * high, 1) : fix(s * high, 3)) + "</text>"; }).join("") +
    '<path d="M' + X(CF.least) + " " + T + "V" + (H - B) + '" stroke="var(--ink)" stroke-dasharray="2 3"/>' +
    '<text x="' + (W - R) + '" y="' + (H - 4) + '" text-anchor="end">% of the weight on other ' + CF.word + '</text><text style="paint-order:stroke;stroke:var(--page);stroke-width:5px" x="' + (L + 5) + '" y="' + (T + 11) + '">' + (CF.outputs ? "answer moved, % (total variation)" : "answer moved") + "</text>";
  CF.texts.forEach(function (f, i) {
    if (f) h += '<circle data-i="' + i + '" cx="' + X(f.moved).toFixed(1) + '" cy="' + Y(f.answer).toFixed(1) + '" r="5" ' + (f.another ? 'fill="var(--bandline)"' : 'fill="var(--page)"') + ' stroke="var(--ink)" stroke-width="1.2"/>';
  });
  box.innerHTML = '<svg viewBox="0 0 ' + W + " " + H + '" style="width:100%" tabindex="0" role="img" aria-label="' + esc($("h-counterfactual").textContent + ". Arrow keys go from " + NOUN.text + " to " + NOUN.text + ", enter opens one.") + '">' + h + '<g class="ring"></g></svg>';
  cfMark(null);
}
function cfMark(index) {
  var box = $("cfplot"), at = index == null ? now : index, dot = box && box.querySelector('[data-i="' + at + '"]'), f = CF.texts[at];
  cfAt = at;
  if (!box) return;
  box.querySelector(".ring").innerHTML = dot ? '<circle cx="' + dot.getAttribute("cx") + '" cy="' + dot.getAttribute("cy") + '" r="9" fill="none" stroke="var(--focus)" stroke-width="2"/>' : "";
  $("cfnow").innerHTML = capital(NOUN.text) + " " + (at + 1) + (f ? ", " + pc(f.moved, 0) + " of the weight on other " + CF.word + ", the answer moved by " + (CF.outputs ? pc(f.answer, 2) : fix(f.answer, 3)) : ", not measured") + ": <bdi>" + esc(D.texts[at].title) + "</bdi>";
}
function cfStep(step) {
  var order = CF.texts.map(function (f, i) { return i; }).filter(function (i) { return CF.texts[i]; });
  order.sort(function (a, b) { return CF.texts[a].moved - CF.texts[b].moved; });
  return order[Math.max(0, Math.min(order.length - 1, order.indexOf(cfAt) + step))];
}
function startCounterfactual() {
  var box = $("cfplot"), dotOf = function (e) { return e.target.dataset && e.target.dataset.i != null ? +e.target.dataset.i : null; };
  listeners.push(function () { cfStrip(); cfNumbers(); cfMark(null); });
  if (!box) return;
  box.addEventListener("mouseover", function (e) { cfMark(dotOf(e)); });
  box.addEventListener("mouseleave", function () { cfMark(null); });
  box.addEventListener("click", function (e) { if (dotOf(e) != null) pick(dotOf(e)); });
  box.addEventListener("keydown", function (e) {
    var step = e.key === "ArrowRight" ? 1 : e.key === "ArrowLeft" ? -1 : 0;
    if (e.key === "Enter") pick(cfAt);
    if (!step) return;
    e.preventDefault();
    cfMark(cfStep(step));
  });
  cfPlot();
  addEventListener("resize", cfPlot);
}
if (CF) startCounterfactual();
