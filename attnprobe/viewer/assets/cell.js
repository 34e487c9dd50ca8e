/* Cell view: what one weight is made of, and what it does: score, weight, lengths, effect; query, key and value. */
var BAR = 46;
function drawCell(V) {
  var l = layerOf(V), d = headOf(V), map = mapOf(V, stackOf(V), l, V.state.head, "weight"), q = V.state.q, k = V.state.k, Q = sideOf(V, l, "q"), K = sideOf(V, l, "k");
  var box = find(V, ".cellbox");
  box.parentNode.classList.remove("few");
  if (map.pooled) { box.innerHTML = blockCell(V, l, map, q, k); return; }
  var n = map.columns, row = map.values.subarray(q * n, (q + 1) * n), w = row[k], list = [];
  if (d.score) list.push(scoreFact(V, d, q, k, n));
  list.push(["Weight", pc(w), ofRow(w, seen(V, d, q, row))]);
  ["value", "written"].forEach(function (m) {
    if (!l[m]) return;
    var len = norms(V, l, V.state.head, m), parts = row.map(function (v, i) { return Math.abs(v) * len[i]; }), sum = sumOf(parts) || 1;
    list.push([m === "value" ? "|v|, length of the value" : "|v\u00a0W\u2092|, of what it writes", num(len[k]), place(len[k], len) + " of the keys"]);
    list.push([m === "value" ? "α|v|, times the weight" : "α|v\u00a0W\u2092|, times the weight", num(parts[k]), pc(parts[k] / sum) + " of the row’s; " + place(parts[k], parts)]);
  });
  if (d.effect) {
    var e = mapOf(V, stackOf(V), l, V.state.head, "effect"), v = e.values[q * n + k];
    list.push(["Attention × gradient", sgn(v, digits(v)), "on the " + V.data.target]);
  }
  var other = function (side, i) { return side.exact && side.exact[i] ? ' <span class="mute">(' + tok(side.exact[i]) + ")</span>" : ""; };
  box.parentNode.classList.toggle("few", list.length < 2 && !d.vectors);
  box.innerHTML = '<div class="mh"><span>One weight: ' + tok(Q.names[q]) + other(Q, q) + " → " + tok(K.names[k]) + other(K, k) + '</span></div><dl class="facts">' + list.map(function (f) {
    return "<div><dt>" + esc(f[0]) + "</dt><dd>" + esc(f[1]) + "<small>" + esc(f[2]) + "</small></dd></div>";
  }).join("") + "</dl>" + vectors(V, d, q, k, Q, K) + '<p class="note sm">' + missing(V, l, d) + "</p>";
}
function place(v, values) { var r = rankOf(v, values); return r + (r % 100 > 10 && r % 100 < 20 ? "th" : ["th", "st", "nd", "rd"][r % 10] || "th") + " of " + values.length; }
/* The weights of a row on the keys that its query can see: by its scores where they are known; else all but 0. */
function seen(V, d, q, row) {
  return Array.from(row).filter(function (v, i) { return d.score ? V.bytes[d.score[0] + q * row.length + i] : v !== 0; });
}
function ofRow(w, row) {
  if (row.indexOf(w) < 0) return "a key that this query does not see";
  return row.length === 1 ? "the only key that this query sees" : place(w, row) + " keys that it sees; even would be " + pc(1 / row.length);
}
/* The score that the softmax got: 254 even steps between the lowest and the highest; code 0 is hidden. */
function scoreFact(V, d, q, k, n) {
  var code = function (i) { return V.bytes[d.score[0] + q * n + i]; }, row = [], c = code(k);
  var of = function (x) { return d.score[1] + (x - 1) / 254 * (d.score[2] - d.score[1]); };
  if (!c) return ["Score before the softmax", "hidden", "a mask hides this key from this query"];
  for (var i = 0; i < n; i++) if (code(i)) row.push(of(code(i)));
  return ["Score before the softmax", sgn(of(c), 2), "scale, bias and mask included; " + place(of(c), row)];
}
function blockCell(V, l, map, q, k) {
  var top = topOf(V, stackOf(V), l, V.state.head, "weight"), Q = sideOf(V, l, "q").names, K = sideOf(V, l, "k").names, b = blocksOf(Q.length, map.rows)[Math.min(q, map.rows - 1)], rows = [];
  if (!top) return '<p class="note sm">Of this head the overview alone is kept.</p>';
  for (var i = b[0]; i < b[1]; i++) {
    var sum = top[i].reduce(function (a, p) { return a + p[1]; }, 0);
    rows.push("<tr><th scope='row'>" + tok(Q[i]) + "</th><td>" + top[i].map(function (p) { return tok(K[p[0]]) + '<small class="mute"> ' + pc(p[1]) + "</small>"; }).join(", ") + '</td><td class="r">' + pc(Math.max(0, 1 - sum)) + "</td></tr>");
  }
  return '<div class="mh">Largest weights of the rows in this block</div><div class="scroll" tabindex="0" role="region" aria-label="Largest weights"><table><thead><tr><th scope="col">Looks</th><th scope="col">at</th><th scope="col" class="r">left out</th></tr></thead><tbody>' + rows.join("") + "</tbody></table></div>";
}
/* A vector of one token, from 254 even steps. */
function vector(V, where, i) {
  var d = where[2];
  return Array.from({ length: d }, function (_, j) { return (V.bytes[where[0] + i * d + j] - 127) / 127 * where[1]; });
}
function vectors(V, d, q, k, Q, K) {
  var v = d.vectors, h = "";
  if (!v) return "";
  var a = v.query && vector(V, v.query, q), b = v.key && vector(V, v.key, k), value = v.value && vector(V, v.value, k);
  if (a) h += strip("Query of " + tok(Q.names[q]), a);
  if (b) h += strip("Key of " + tok(K.names[k]), b);
  if (a && b && a.length === b.length) {
    var product = a.map(function (x, i) { return x * b[i]; });
    h += strip("Query × key, dimension by dimension: sum about " + aboutSum(a, b, v, product), product);
  }
  if (value) h += strip("Value of " + tok(K.names[k]), value);
  return '<div class="strips">' + h + "</div>";
}
/* A sum of products with the digits that hold: the numbers are known to half of one of 127 steps. */
function aboutSum(a, b, v, product) {
  var off = function (x, step) { return sumOf(x.map(function (y) { return y * y; })) * step * step / 12; };
  var likely = 2 * Math.sqrt(off(a, v.key[1] / 127) + off(b, v.query[1] / 127));
  return sgn(sumOf(product), Math.min(4, Math.max(0, Math.round(-Math.log10(likely || 1)))));
}
/* A vector as bars up (blue) and down (orange) from 0. */
function strip(title, numbers) {
  var most = 0, w = 100 / numbers.length, mid = BAR / 2, h = "";
  numbers.forEach(function (x) { most = Math.max(most, Math.abs(x)); });
  numbers.forEach(function (x, i) {
    var size = (mid - 1) * Math.abs(x) / (most || 1);
    h += '<rect x="' + (i * w).toFixed(3) + '" width="' + (w * 0.82).toFixed(3) + '" y="' + (x > 0 ? mid - size : mid).toFixed(2) + '" height="' + size.toFixed(2) + '" fill="var(--' + (x > 0 ? "pos" : "neg") + ')"/>';
  });
  var text = title.replace(/<[^>]*>/g, "");
  return '<figure><figcaption>' + title + '</figcaption><svg viewBox="0 0 100 ' + BAR + '" preserveAspectRatio="none" role="img" aria-label="' + text + ", " + numbers.length + " numbers, the largest " + num(most) + '"><path d="M0 ' + mid + 'H100" stroke="var(--bandline)" stroke-width=".6" vector-effect="non-scaling-stroke"/>' + h + '</svg><p class="note sm">' + numbers.length + " dimensions, up to ±" + num(most) + "</p></figure>";
}
/* What this capture does not hold, or this page for this head, and how to get it. */
function missing(V, l, d) {
  var heads = [], none = [], here = [], names = [];
  if (!V.options.page) return "";
  stackOf(V).layers.forEach(function (x) { heads = heads.concat(x.heads); });
  var lacks = function (name, words, keep) {
    if (d[name]) return;
    if (heads.some(function (h) { return h[name]; })) here.push(words); else { none.push(words); names = names.concat(keep); }
  };
  lacks("score", "scores before the softmax", ["scores"]);
  lacks("vectors", "queries, keys and values", ["query", "key", "value"]);
  if (!l.value && !l.written) { none.push("lengths of values"); if (names.indexOf("value") < 0) names.push("value"); }
  var how = none.length ? "Not kept in this capture: " + none.join("; ") + ". To have them: model.capture(example, keep=Keep.of(" + ["weights"].concat(names).map(function (x) { return '"' + x + '"'; }).join(", ") + ")), with Keep from attnprobe." : "";
  return esc([how, here.length ? "There was no room on the page for this head’s " + here.join(" and ") + "; name the head to view(capture, heads=…) to have them first." : ""].join(" ").trim());
}
