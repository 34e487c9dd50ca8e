/* Kendall's tau of each pair of methods: the number below the diagonal, its interval above. */
var direction = "signed", MOST_NUMBERS = 16;
function matrix() {
  var ms = shownMethods(), wide = ms.length > 6, dense = ms.length > MOST_NUMBERS, pairs = D.agreement[direction];
  $("agree").classList.toggle("all", wide);
  if ($("mxdense")) { $("mxdense").hidden = !dense; $("mxplain").hidden = dense; }
  var h = '<table class="mx' + (dense ? " dense" : wide ? " wide" : "") + '"><caption class="vh">Kendall’s tau between methods, ' + (direction === "signed" ? "with direction" : "size only") +
    '</caption><thead><tr><td style="width:' + (wide ? 13 : 19) + '%"></td>';
  ms.forEach(function (m) { h += '<th scope="col">' + glyph(m) + "<br><span>" + esc(INFO[m].short) + "</span></th>"; });
  h += "</tr></thead><tbody>";
  ms.forEach(function (a, i) {
    h += '<tr><th scope="row">' + glyph(a) + " " + esc(INFO[a].short) + "</th>";
    ms.forEach(function (b, j) { h += i === j ? '<td class="self" aria-label="same method"></td>' : cell(a, b, pairs[a + "|" + b] || pairs[b + "|" + a] || [null, null, null], j < i); });
    h += "</tr>";
  });
  $("mx").innerHTML = h + "</tbody></table>";
}
function cell(a, b, t, below) {
  if (t[0] == null) return below ? '<td class="none" title="one of the two gives all ' + NOUN.tokens + ' the same score, or failed"><small>none</small></td>' : "<td></td>";
  var known = t[1] != null, open = known && t[1] <= 0 && t[2] >= 0;
  if (below) {
    return '<td class="c s' + (t[0] < 0 ? " m" : "") + (open ? " open" : "") + '" style="--v:' + Math.abs(t[0]).toFixed(2) + '" title="' + esc(INFO[a].label + " and " + INFO[b].label + ": " + sgn(t[0], 2) + (known ? ", " + sgn(t[1], 2) + " to " + sgn(t[2], 2) : "")) + '"><b>' + sgn(t[0], 2) + "</b>" +
      (known ? "<small>" + sgn(t[1], 2) + " to " + sgn(t[2], 2) + "</small>" : "") + "</td>";
  }
  if (!known) return '<td aria-hidden="true"></td>';
  var x = function (v) { return 4 + (v + 1) * 36; }, ink = open ? "var(--bandline)" : "var(--ink)";
  return '<td aria-hidden="true"><svg viewBox="0 0 80 40" style="width:100%;max-height:46px"><path d="M40 6V34" stroke="var(--line)"/><path d="M4 20H76" stroke="var(--hair)"/><path d="M' + x(t[1]) + " 20H" + x(t[2]) +
    '" stroke="' + ink + '" stroke-width="3"/><circle cx="' + x(t[0]) + '" cy="20" r="3.6" stroke-width="1.8" stroke="' + ink + '" fill="' + (open ? "var(--page)" : "var(--ink)") + '"/></svg></td>';
}
function startAgreement() {
  if (!$("mx")) return;
  switches("data-tau", function (value) { direction = value; matrix(); });
  setListeners.push(matrix);
  matrix();
}
