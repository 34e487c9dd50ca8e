/* Small multiples: what happens to the answer as tokens are taken away, or left alone; one cursor for all. */
var kind = "removed", cursor = 3;
function curves() {
  var C = D.curves, K = C.kinds[kind], ms = M.filter(function (m) { return K.methods[m]; }), box = $("multi"), small = phone();
  var cols = small ? 2 : ms.length <= 6 ? Math.min(3, ms.length) : ms.length <= 8 ? 4 : 5, gap = small ? 18 : cols > 3 ? 24 : 34;
  box.style.setProperty("--cols", cols);
  box.style.columnGap = gap + "px";
  var W = Math.max(140, Math.min(360, Math.floor((box.clientWidth - gap * (cols - 1)) / cols))), H = small ? 136 : cols > 3 ? 140 : 170;
  var L = C.probability ? 26 : 36, B = 24, T = 8, R = 8, low = C.ticks[0], high = C.ticks[C.ticks.length - 1], S = C.shares;
  var X = function (s) { return L + (W - L - R) * s; }, Y = function (v) { return T + (H - T - B) * (1 - (v - low) / (high - low)); };
  var path = function (a) { return a.map(function (v, j) { return v == null ? "" : (j ? "L" : "M") + X(S[j]).toFixed(1) + " " + Y(v).toFixed(1); }).join(""); };
  var area = function (line) {
    if (!line || line.low[0] == null) return "";
    var back = line.low.map(function (v, j) { return X(S[j]).toFixed(1) + " " + Y(v).toFixed(1); }).reverse().join("L");
    return path(line.high) + "L" + back + "Z";
  };
  var say = function (v) { return C.probability ? pc(v) : sgn(v, 2); };
  var axis = C.ticks.map(function (v) {
    return '<path d="M' + L + " " + Y(v) + "H" + (W - R) + '" stroke="var(--hair)"/><text x="' + (L - 6) + '" y="' + (Y(v) + 4) + '" text-anchor="end">' + (C.probability ? 100 * v : fix(v, 1)) + "</text>";
  }).join("") + [0, 0.5, 1].map(function (s) {
    return '<text x="' + X(s) + '" y="' + (H - 6) + '" text-anchor="' + (s === 1 ? "end" : s ? "middle" : "start") + '">' + 100 * s + "</text>";
  }).join("");
  box.innerHTML = ms.map(function (m) {
    var line = K.methods[m], mid = S.indexOf(0.2);
    return "<figure><h3>" + glyph(m) + esc(cols > 3 || small ? INFO[m].short : INFO[m].label) + "</h3><figcaption>mean <b>" + D.areas[kind][m] + "</b>" +
      (K.random && D.areas[kind]["random orders"] ? ", random " + D.areas[kind]["random orders"] : "") + '</figcaption><svg viewBox="0 0 ' + W + " " + H +
      '" tabindex="0" role="img" data-m="' + M.indexOf(m) + '" aria-label="' + esc(INFO[m].label) + ": " + (kind === "removed" ? "with its top tokens taken away" : "with only its top tokens left") +
      ", from " + say(line.mean[0]) + " to " + say(line.mean[mid]) + " at 20 % of the tokens. Mean height " + D.areas[kind][m] + '. Arrow keys step through the curve.">' + axis +
      '<path d="' + area(K.random) + '" fill="var(--band)" opacity=".85"/>' + (K.random ? '<path d="' + path(K.random.mean) + '" fill="none" stroke="var(--bandline)"/>' : "") +
      '<path d="' + area(line) + '" fill="' + colour(m) + '" opacity=".16"/><path d="' + path(line.mean) + '" fill="none" stroke="' + colour(m) +
      '" stroke-width="2.6" stroke-linejoin="round"' + (INFO[m].filled ? "" : ' stroke-dasharray="5 2.5"') + '/><g class="hair"></g></svg></figure>';
  }).join("");
  box.at = function (j, m) {
    all("svg[data-m]", box).forEach(function (svg) {
      var name = M[+svg.dataset.m], v = j == null ? null : K.methods[name].mean[j], late = j != null && S[j] > 0.6;
      svg.querySelector(".hair").innerHTML = v == null ? "" : '<path d="M' + X(S[j]) + " " + T + "V" + (H - B) + '" stroke="var(--mute)" stroke-dasharray="1 2"/><circle cx="' + X(S[j]) + '" cy="' + Y(v) +
        '" r="3.6" fill="' + colour(name) + '"/><text x="' + (X(S[j]) + (late ? -8 : 8)) + '" y="' + Math.max(18, Y(v) - 7) + '" text-anchor="' + (late ? "end" : "start") +
        '" style="fill:var(--ink);font-size:13px;font-weight:600;paint-order:stroke;stroke:var(--page);stroke-width:4px">' + say(v) + "</text>";
    });
    var what = kind === "removed" ? "taken away" : "left";
    $("dnow").textContent = j == null
      ? "Across: share of the tokens " + what + ", in %. Up: " + (C.probability ? "probability of the explained answer, in %." : "the explained number.") + " Band and thin line: random orders, middle 90 % and mean. Point at a curve, or focus it and use the arrow keys."
      : Math.round(100 * S[j]) + NB + "% of the tokens " + what + (m ? "; " + INFO[m].label + ": " + say(K.methods[m].mean[j]) : "") + (K.random ? ". Random orders: " + say(K.random.mean[j]) : "") + ".";
  };
  box.nearest = function (e, svg) {
    var r = svg.getBoundingClientRect(), s = ((e.clientX - r.left) / r.width * W - L) / (W - L - R), best = 0;
    S.forEach(function (v, j) { if (Math.abs(v - s) < Math.abs(S[best] - s)) best = j; });
    return best;
  };
  $("better").textContent = "Above each curve: its mean height, " + (kind === "removed" ? "lower is better: the answer falls sooner" : "higher is better: the first tokens keep more of the answer") + ".";
  box.at(null);
}
function startCurves() {
  var box = $("multi"), svgOf = function (e) { return e.target.closest ? e.target.closest("svg[data-m]") : null; };
  box.addEventListener("mousemove", function (e) { var s = svgOf(e); if (s) box.at(box.nearest(e, s), M[+s.dataset.m]); });
  box.addEventListener("mouseleave", function () { box.at(null); });
  box.addEventListener("focusin", function (e) { var s = svgOf(e); if (s) box.at(cursor, M[+s.dataset.m]); });
  box.addEventListener("focusout", function () { box.at(null); });
  box.addEventListener("keydown", function (e) {
    var s = svgOf(e), step = e.key === "ArrowRight" ? 1 : e.key === "ArrowLeft" ? -1 : 0;
    if (!s || !step) return;
    cursor = Math.max(0, Math.min(D.curves.shares.length - 1, cursor + step));
    e.preventDefault();
    box.at(cursor, M[+s.dataset.m]);
  });
  all("[data-kind]").forEach(function (b) { b.onclick = function () { kind = b.dataset.kind; press(b, "data-kind"); curves(); }; });
}
