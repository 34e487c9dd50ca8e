/* The strip under the claim: attention above the words, the effect with its sign below. */
var WORDS_AT_MOST = 60;
function firstOf(t, wanted, signed) {
  var known = methodsOf(t).filter(function (m) { return t.methods[m].signed == signed && !INFO[m].control; });
  return wanted.filter(function (m) { return known.indexOf(m) >= 0; })[0] || known[0];
}
/* The tokens with the largest shares of a row, the largest first. */
function topOf(row, n) {
  return row.map(function (v, i) { return [Math.abs(v), i]; }).sort(function (x, y) { return y[0] - x[0]; }).slice(0, n).map(function (x) { return x[1]; });
}
function stripWords(t, a, r, most) {
  var k = Math.min((t.tokens.length > 40 ? 32 : 54) / most, a ? 26 / Math.max.apply(0, a) * 2.2 : 1e9);
  var px = function (v) { return v === 0 ? 0 : Math.max(1, Math.round(k * Math.abs(v))); };
  var tall = a ? Math.max(12, px(Math.max.apply(0, a))) : 0, deep = r ? Math.max.apply(0, r.map(px)) + 3 : 0;
  return t.tokens.map(function (w, i) {
    return '<span class="k">' + (a ? '<span class="a" style="height:' + tall + 'px"><i style="height:' + px(a[i]) + 'px"></i></span>' : "") +
      '<span class="w' + (t.special[i] ? " sp" : "") + '">' + tok(w) + "</span>" +
      (r ? '<span class="r" style="height:' + deep + 'px"><i style="height:' + px(r[i]) + "px;background:var(--" + (r[i] < 0 ? "neg" : "pos") + ')"></i></span>' : "") + "</span>";
  }).join("");
}
/* Whether one side would be flat beside the other on one scale: then each has its own, and the figure says so. */
function uneven(a, r) {
  if (!a || !r) return false;
  var size = [a, r].map(function (row) { return Math.max.apply(0, row.map(Math.abs)); });
  return Math.min.apply(0, size) < Math.max.apply(0, size) / 8;
}
/* Bars side by side from a line at y, up (-1) or down (1), so many px a unit; null draws none. */
function barsOf(row, step, y, side, scale) {
  return row.map(function (v, i) {
    if (v === null) return "";
    var h = v === 0 ? 0 : Math.max(1, scale * v);
    return "M" + (i * step).toFixed(2) + " " + y + "v" + (side * h).toFixed(1) + "h" + Math.max(0.7, step - (step > 3 ? 1 : 0)).toFixed(2) + "V" + y + "z";
  }).join("");
}
/* Names of the highest, left out where they would lie on one another. */
function namesOf(t, row, at, W, step) {
  var used = [];
  return topOf(row, 8).map(function (i) {
    var x = Math.min(W - 40, Math.max(40, (i + 0.5) * step)), wide = 7.2 * Math.min(14, t.tokens[i].length) + 14;
    if (used.length >= 5 || used.some(function (u) { return Math.abs(u[0] - x) < (u[1] + wide) / 2; })) return "";
    used.push([x, wide]);
    return '<text x="' + x.toFixed(1) + '" y="' + at + '" text-anchor="middle">' + esc(t.tokens[i].slice(0, 14)) + "</text>";
  }).join("");
}
/* A long text: a bar a token, without its word; the highest are named. */
function stripBars(t, a, r, most) {
  var largest = function (row) { return row ? Math.max.apply(0, row.map(Math.abs)) || 1 : 1; }, apart = uneven(a, r), tops = apart ? [largest(a), largest(r)] : [most, most];
  var box = $("strip"), W = Math.max(300, printing ? Math.min(PAPER, box.clientWidth) : box.clientWidth), n = t.tokens.length, step = W / n, up = a ? 52 : 0, down = r ? 60 : 0, T = 20, y = T + up;
  var path = function (row, side, fill, keep) {
    return '<path d="' + barsOf(row.map(function (v) { return keep(v) ? Math.abs(v) : null; }), step, y, side, side < 0 ? up / tops[0] : down / tops[1]) + '" fill="' + fill + '"/>';
  };
  var label = function (row, at) { return namesOf(t, row, at, W, step); };
  return '<svg class="long" viewBox="0 0 ' + W + " " + (y + down + 20) + '" width="' + W + '">' + (a ? path(a, -1, "var(--bandline)", function (v) { return v; }) + label(a, Math.max(12, y - 6 - up * Math.max.apply(0, a) / tops[0])) : "") +
    (r ? path(r, 1, "var(--pos)", function (v) { return v > 0; }) + path(r, 1, "var(--neg)", function (v) { return v < 0; }) + label(r, y + down + 16) : "") +
    '<path d="M0 ' + y + "H" + W + '" stroke="var(--line)"/></svg>';
}
function strip() {
  var t = text(), long = t.tokens.length > WORDS_AT_MOST;
  var up = firstOf(t, ["raw_attention", "rollout"], 0), down = firstOf(t, ["leave_one_out", "shapley_sampling", "occlusion", "integrated_gradients"], 1);
  var a = up ? shares(t, up) : null, r = down ? shares(t, down) : null, most = long ? 0 : 0.01;
  [a, r].forEach(function (row) { (row || []).forEach(function (v) { most = Math.max(most, Math.abs(v)); }); });
  var said = function (row, m) {
    return topOf(row, 3).map(function (i) { return t.tokens[i] + " " + (t.methods[m].signed ? sgn(100 * row[i], 0) : fix(100 * row[i], 0)) + NB + "%"; }).join(", ");
  };
  var label = (up ? INFO[up].label + " above each token: " + said(a, up) + ". " : "") + (down ? INFO[down].label + " below: " + said(r, down) + "." : "");
  var name = function (m) { return INFO[m].inline; };
  $("strip").innerHTML = '<div class="ln" role="img" aria-label="' + esc(label) + '">' + (long ? stripBars(t, a, r, most || 1) : stripWords(t, a, r, most)) + "</div><figcaption>" +
    (up ? '<span style="--k:var(--bandline)">above: ' + name(up) + ", no direction</span>" : "") +
    (down ? '<span style="--k:var(--pos)">below: argues for ' + esc(t.answer) + " (" + name(down) + ')</span><span style="--k:var(--neg)">below: argues against</span>' : "") +
    (long ? '<b style="font-weight:400">a bar a token, the highest named; ' + (up && down ? uneven(a, r) ? "each side up to its own largest, " + [a, r].map(function (row) { return pc(Math.max.apply(0, row.map(Math.abs)), 0); }).join(" and ") + " of its row" : "same scale" : "% of the row’s total size") + "</b>" : up && down ? '<b style="font-weight:400">same scale, % of the row’s total size</b>' : "") + "</figcaption>";
  var cells = all(".k", $("strip"));
  if (cells.length && cells[0].offsetTop !== cells[cells.length - 1].offsetTop) $("strip").firstChild.insertAdjacentHTML("beforeend", '<span style="flex:1000 1 0"></span>');
}
