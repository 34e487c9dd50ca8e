/* Small multiples: what happens to the answer as tokens are taken away, or left alone; one cursor for all. */
var kind = "removed", cursor = 3;
/* Sizes and scales of one figure of so many columns. */
function curveFrame(box, n) {
  var small = phone() && !printing, cols = small ? 2 : Math.min(3, n), gap = small ? 18 : 34, C = D.curves;
  if (n > 6 && !small) { cols = n <= 8 ? 4 : 5; gap = 24; }
  box.style.setProperty("--cols", cols);
  box.style.columnGap = gap + "px";
  var room = printing ? Math.min(PAPER, box.clientWidth) : box.clientWidth;
  var W = Math.max(140, Math.min(360, Math.floor((room - gap * (cols - 1)) / cols))), H = small ? 136 : cols > 3 ? 140 : 170;
  var L = C.probability ? 26 : 36, B = 24, T = 8, R = 8, low = C.ticks[0], high = C.ticks[C.ticks.length - 1];
  return {
    W: W, H: H, L: L, B: B, T: T, R: R, short: small || cols > 3, low: low, high: high,
    X: function (s) { return L + (W - L - R) * s; },
    Y: function (v) { return T + (H - T - B) * (1 - (v - low) / (high - low)); }
  };
}
function curvePath(f, values) {
  return values.map(function (v, j) { return v == null ? "" : (j ? "L" : "M") + f.X(D.curves.shares[j]).toFixed(1) + " " + f.Y(v).toFixed(1); }).join("");
}
function curveArea(f, line) {
  if (!line || line.low[0] == null) return "";
  var back = line.low.map(function (v, j) { return f.X(D.curves.shares[j]).toFixed(1) + " " + f.Y(v).toFixed(1); }).reverse().join("L");
  return curvePath(f, line.high) + "L" + back + "Z";
}
function curveSay(v) { return D.curves.probability ? pc(v) : sgn(v, 2); }
function curveAxes(f) {
  var C = D.curves;
  return C.ticks.map(function (v) {
    return '<path d="M' + f.L + " " + f.Y(v) + "H" + (f.W - f.R) + '" stroke="var(--hair)"/><text x="' + (f.L - 6) + '" y="' + (f.Y(v) + 4) + '" text-anchor="end">' + (C.probability ? 100 * v : fix(v, 1)) + "</text>";
  }).join("") + [0, 0.5, 1].map(function (s) {
    return '<text x="' + f.X(s) + '" y="' + (f.H - 6) + '" text-anchor="' + (s === 1 ? "end" : "middle") + '">' + 100 * s + "</text>";
  }).join("");
}
function curveFigure(f, m, axes) {
  var K = D.curves.kinds[kind], line = K.methods[m], mid = D.curves.shares.indexOf(0.2), area = D.areas[kind];
  var random = K.random && area["random orders"], best = K.best && area["best order"];
  return "<figure><h3>" + glyph(m) + esc(f.short ? INFO[m].short : INFO[m].label) + "</h3><figcaption>mean <b>" + area[m] + "</b>" +
    (random ? ", random " + random : "") + (best && !f.short ? ", best " + best : "") + '</figcaption><svg style="max-width:' + f.W * 1.25 + 'px" viewBox="0 0 ' + f.W + " " + f.H +
    '" tabindex="0" role="img" data-m="' + M.indexOf(m) + '" aria-label="' + esc(INFO[m].label) + ": " + (kind === "removed" ? "with its top " + NOUN.tokens + " taken away" : "with only its top " + NOUN.tokens + " left") +
    ", from " + curveSay(line.mean[0]) + " to " + curveSay(line.mean[mid]) + " at 20 % of the " + NOUN.tokens + ". Mean height " + area[m] + (random ? "; random orders " + random : "") + (best ? "; best order found " + best : "") +
    '. Arrow keys step through the curve.">' + axes + '<path class="rb" d="' + curveArea(f, K.random) + '" fill="var(--band)" opacity=".85"/>' +
    (K.random ? '<path d="' + curvePath(f, K.random.mean) + '" fill="none" stroke="var(--bandline)"/>' : "") +
    (K.best ? '<path class="ob" d="' + curveArea(f, K.best) + '" fill="var(--ink)" opacity=".05"/><path d="' + curvePath(f, K.best.mean) + '" fill="none" stroke="var(--ink)" stroke-width="1.5" stroke-dasharray="1.5 3" stroke-linecap="round"/>' : "") +
    '<path d="' + curveArea(f, line) + '" fill="' + colour(m) + '" opacity=".16"/><path d="' + curvePath(f, line.mean) + '" fill="none" stroke="' + colour(m) +
    '" stroke-width="2.6" stroke-linejoin="round"' + (INFO[m].filled ? "" : ' stroke-dasharray="5 2.5"') + '/><g class="hair"></g></svg></figure>';
}
function curves() {
  var K = D.curves.kinds[kind], box = $("multi");
  if (!box) return;
  var ms = shownMethods().filter(function (m) { return K.methods[m]; }), f = curveFrame(box, ms.length), axes = curveAxes(f);
  box.innerHTML = ms.map(function (m) { return curveFigure(f, m, axes); }).join("");
  box.frame = f;
  $("better").textContent = "Above each curve: its mean height, " + (kind === "removed" ? "lower is better: the answer falls sooner" : "higher is better: the first " + NOUN.tokens + " keep more of the answer") + ".";
  curveKey(K);
  curveAt(null);
}
function curveKey(K) {
  var line = function (style) { return '<svg width="30" height="14" aria-hidden="true"><path d="M0 7H30" fill="none" ' + style + "/></svg>"; };
  var band = function (fill, style) { return '<svg width="30" height="14" aria-hidden="true"><rect width="30" height="14" rx="2" ' + fill + '/><path d="M0 7H30" ' + style + "/></svg>"; };
  var several = D.texts.length > 1, sure = Object.keys(K.methods).some(function (m) { return K.methods[m].low[0] != null; });
  $("ckey").innerHTML = "<span>" + line('stroke="var(--ink)" stroke-width="2.6"') + "this method" + (sure ? ", shaded: 95" + NB + "% interval" : "") + "</span>" +
    (K.random ? "<span>" + band('fill="var(--band)"', 'stroke="var(--bandline)"') + "random orders: mean and middle 90" + NB + "%</span>" : "") +
    (K.best ? "<span>" + band('fill="var(--ink)" opacity=".05"', 'stroke="var(--ink)" stroke-width="1.5" stroke-dasharray="1.5 3" stroke-linecap="round"') + "best order found (" + D.curves.search + ")" + (several && K.best.low[0] != null ? ": mean and 95" + NB + "% interval" : "") + "</span>" : "");
}
/* The cursor of all figures at one share of the tokens; null: away. m: the figure that is pointed at. */
function curveAt(j, m) {
  var box = $("multi"), f = box.frame, C = D.curves, K = C.kinds[kind], what = kind === "removed" ? "taken away" : "left";
  all("svg[data-m]", box).forEach(function (svg) {
    var name = M[+svg.dataset.m], v = j == null ? null : K.methods[name].mean[j], late = j != null && C.shares[j] > 0.6;
    svg.querySelector(".hair").innerHTML = v == null ? "" : '<path d="M' + f.X(C.shares[j]) + " " + f.T + "V" + (f.H - f.B) + '" stroke="var(--mute)" stroke-dasharray="1 2"/><circle cx="' + f.X(C.shares[j]) + '" cy="' + f.Y(v) +
      '" r="3.6" fill="' + colour(name) + '"/><text x="' + (f.X(C.shares[j]) + (late ? -8 : 8)) + '" y="' + Math.max(18, f.Y(v) - 7) + '" text-anchor="' + (late ? "end" : "start") +
      '" style="fill:var(--ink);font-size:13px;font-weight:600;paint-order:stroke;stroke:var(--page);stroke-width:4px">' + curveSay(v) + "</text>";
  });
  $("dnow").textContent = j == null
    ? "Across: share of the " + NOUN.tokens + " " + what + ", in %. Up: " + (C.probability ? "probability of the explained answer, in %." : "the explained number.") + " Point at a curve, or focus it and use the arrow keys."
    : Math.round(100 * C.shares[j]) + NB + "% of the " + NOUN.tokens + " " + what + (m ? "; " + INFO[m].label + ": " + curveSay(K.methods[m].mean[j]) : "") +
      (K.random ? ". Random orders: " + curveSay(K.random.mean[j]) : "") + (K.best ? ". Best order found: " + curveSay(K.best.mean[j]) : "") + ".";
}
function curveNearest(e, svg) {
  var f = $("multi").frame, S = D.curves.shares, r = svg.getBoundingClientRect(), s = ((e.clientX - r.left) / r.width * f.W - f.L) / (f.W - f.L - f.R), best = 0;
  S.forEach(function (v, j) { if (Math.abs(v - s) < Math.abs(S[best] - s)) best = j; });
  return best;
}
function startCurves() {
  var box = $("multi"), svgOf = function (e) { return e.target.closest ? e.target.closest("svg[data-m]") : null; };
  if (!box) return;
  box.addEventListener("mousemove", function (e) { var s = svgOf(e); if (s) curveAt(curveNearest(e, s), M[+s.dataset.m]); });
  box.addEventListener("mouseleave", function () { curveAt(null); });
  box.addEventListener("focusin", function (e) { var s = svgOf(e); if (s) curveAt(cursor, M[+s.dataset.m]); });
  box.addEventListener("focusout", function () { curveAt(null); });
  box.addEventListener("keydown", function (e) {
    var s = svgOf(e), step = e.key === "ArrowRight" ? 1 : e.key === "ArrowLeft" ? -1 : 0;
    if (!s || !step) return;
    cursor = Math.max(0, Math.min(D.curves.shares.length - 1, cursor + step));
    e.preventDefault();
    curveAt(cursor, M[+s.dataset.m]);
  });
  switches("data-kind", function (value) { kind = value; curves(); });
  setListeners.push(curves);
}
