/* All texts at a glance: a dot a text, a row a method; one text is followed through all rows. */
var spreadMetric = 0, spreadRows = [], spreadAt = null;
function spreadText(v) { return v == null ? "–" : (D.spread.metrics[spreadMetric].sign ? sgn : fix)(D.spread.factor * v, D.spread.digits); }
/* Places of the dots of one row: beside one another where they would lie on one another. */
function swarm(values, X, r, half) {
  var bins = {}, found = values.map(function (v, i) {
    if (v == null) return null;
    var bin = Math.round(X(v) / (2 * r + 0.6));
    bins[bin] = (bins[bin] || 0) + 1;
    return { i: i, x: X(v), bin: bin, place: bins[bin] - 1 };
  });
  found.forEach(function (d) {
    if (!d) return;
    var n = bins[d.bin], step = Math.min(2 * r + 0.4, n > 1 ? 2 * (half - r) / (n - 1) : 0);
    d.y = (d.place - (n - 1) / 2) * step;
  });
  return found;
}
function dots(row, r, y) {
  return row.dots.map(function (d) {
    return d ? "M" + (d.x - r).toFixed(1) + " " + (y + d.y).toFixed(1) + "a" + r + " " + r + " 0 1 0 " + 2 * r + " 0a" + r + " " + r + " 0 1 0 " + -2 * r + " 0" : "";
  }).join("");
}
function median(values) {
  var known = values.filter(function (v) { return v != null; }).sort(function (a, b) { return a - b; }), n = known.length;
  return n ? (known[(n - 1) >> 1] + known[n >> 1]) / 2 : null;
}
function spreadPlot() {
  var box = $("spreadbox");
  if (!box || !D.spread) return;
  var F = D.spread.metrics[spreadMetric], small = phone() && !printing, n = D.texts.length;
  var W = Math.max(300, printing ? Math.min(PAPER, box.clientWidth) : box.clientWidth), L = small ? 92 : 168, R = small ? 46 : 70, T = 22, H = 34, r = n <= 40 ? 3.4 : n <= 150 ? 2.6 : n <= 500 ? 1.8 : 1.2;
  var X = function (v) { return L + (W - L - R) * (v - F.axis.low) / (F.axis.high - F.axis.low); };
  spreadRows = shownMethods().filter(function (m) { return F.values[m]; }).map(function (m) { return { m: m, label: small ? INFO[m].short : INFO[m].label, values: F.values[m] }; });
  [["random orders", F.random], ["best order", F.best]].forEach(function (x) {
    if (x[1].some(function (v) { return v != null; })) spreadRows.push({ m: null, label: x[0], values: x[1] });
  });
  var height = T + H * spreadRows.length + 24, h = F.axis.ticks.map(function (t) {
    return '<path d="M' + X(t[0]).toFixed(1) + " " + T + "V" + (height - 24) + '" stroke="var(--' + (t[0] === 0 ? "bandline" : "hair") + ')"/><text x="' + X(t[0]).toFixed(1) + '" y="' + (height - 8) + '" text-anchor="middle">' + esc(t[1]) + "</text>";
  }).join("") + '<text x="' + W + '" y="12" text-anchor="end">' + (small ? "" : "middle, ") + esc(D.spread.unit) + "</text>";
  spreadRows.forEach(function (row, k) {
    var y = T + H * k + H / 2, mid = median(row.values), c = row.m ? colour(row.m) : "var(--bandline)";
    row.y = y;
    row.dots = swarm(row.values, X, r, H / 2 - 2);
    h += '<path d="M0 ' + (y + H / 2) + "H" + W + '" stroke="var(--hair)"/>' + (row.m ? '<svg x="0" y="' + (y - 6) + '" width="12" height="12" viewBox="0 0 12 12" overflow="visible" class="g' + (INFO[row.m].filled ? "" : " open") + '" style="color:' + c + '"><use href="#g-' + INFO[row.m].shape + '"/></svg>' : "") +
      '<text x="19" y="' + (y + 4) + '" class="sl' + (row.m ? "" : " q") + '">' + esc(row.label) + '</text><path class="dots" d="' + dots(row, r, y) + '" fill="' + c + '" fill-opacity="' + (n > 60 ? 0.55 : 0.75) + '"/>' +
      (mid == null ? "" : '<path d="M' + X(mid).toFixed(1) + " " + (y - 12) + "v24" + '" stroke="var(--ink)" stroke-width="2.5"/><text x="' + W + '" y="' + (y + 4) + '" text-anchor="end" class="sv">' + spreadText(mid) + "</text>");
  });
  box.innerHTML = '<svg viewBox="0 0 ' + W + " " + height + '" width="' + W + '" tabindex="0" role="img" aria-label="' + esc(spreadLabel(F)) + '">' + h + '<g class="chosen"></g></svg>';
  $("spsaid").textContent = F.said;
  spreadMark(null);
}
function spreadLabel(F) {
  return F.name + " of " + D.texts.length + " " + NOUN.texts + ". Middle " + NOUN.text + ": " + spreadRows.map(function (row) { return row.label + " " + spreadText(median(row.values)); }).join(", ") + ". Arrow keys go from " + NOUN.text + " to " + NOUN.text + ", enter opens one.";
}
/* One text in all rows; null: the text that is open. */
function spreadMark(index) {
  var at = index == null ? now : index, line = "", h = "";
  spreadAt = at;
  spreadRows.forEach(function (row) {
    var d = row.dots[at];
    if (!d) return;
    line += (line ? "L" : "M") + d.x.toFixed(1) + " " + (row.y + d.y).toFixed(1);
    h += '<circle cx="' + d.x.toFixed(1) + '" cy="' + (row.y + d.y).toFixed(1) + '" r="5" fill="none" stroke="var(--focus)" stroke-width="2"/>';
  });
  $("spreadbox").querySelector(".chosen").innerHTML = (index == null ? "" : '<path d="' + line + '" fill="none" stroke="var(--focus)" stroke-opacity=".45"/>') + h;
  $("spnow").innerHTML = capital(NOUN.text) + " " + (at + 1) + ": <bdi>" + esc(D.texts[at].title) + "</bdi>" + (index == null ? "" : ". " + spreadRows.map(function (row) { return esc(row.label) + " " + spreadText(row.values[at]); }).join(", "));
}
function spreadNearest(e, svg) {
  var b = svg.getBoundingClientRect(), k = svg.viewBox.baseVal.width / b.width, x = (e.clientX - b.left) * k, y = (e.clientY - b.top) * k, best = null, least = 400;
  spreadRows.forEach(function (row) {
    row.dots.forEach(function (d) {
      if (!d) return;
      var gap = (d.x - x) * (d.x - x) + (row.y + d.y - y) * (row.y + d.y - y);
      if (gap < least) { least = gap; best = d.i; }
    });
  });
  return best;
}
/* The next text in the order of the first row. */
function spreadStep(step) {
  var values = spreadRows[0].values, order = values.map(function (v, i) { return i; }).filter(function (i) { return values[i] != null; });
  order.sort(function (a, b) { return values[a] - values[b]; });
  return order[Math.max(0, Math.min(order.length - 1, order.indexOf(spreadAt) + step))];
}
function startSpread() {
  var box = $("spreadbox"), svg = function () { return box.querySelector("svg"); };
  if (!box || !D.spread) return;
  box.addEventListener("mousemove", function (e) { var i = spreadNearest(e, svg()); if (i != null) spreadMark(i); });
  box.addEventListener("mouseleave", function () { spreadMark(null); });
  box.addEventListener("focusin", function () { spreadMark(spreadAt); });
  box.addEventListener("focusout", function () { spreadMark(null); });
  box.addEventListener("click", function (e) { var i = spreadNearest(e, svg()); if (i != null) { pick(i); $("text").scrollIntoView(); } });
  box.addEventListener("keydown", function (e) {
    var step = e.key === "ArrowRight" ? 1 : e.key === "ArrowLeft" ? -1 : 0;
    if (e.key === "Enter") { pick(spreadAt); $("text").scrollIntoView(); }
    if (!step) return;
    e.preventDefault();
    spreadMark(spreadStep(step));
  });
  switches("data-spread", function (value) { spreadMetric = +value; spreadPlot(); });
  setListeners.push(spreadPlot);
  listeners.push(function () { if (spreadRows.length) spreadMark(null); });
  spreadPlot();
}
