/* A head in numbers: every head score with its place among the heads of the stack, and what is looked at most. */
function drawCard(V) {
  var s = stackOf(V), l = layerOf(V), d = headOf(V), map = mapOf(V, s, l, V.state.head, "weight"), K = sideOf(V, l, "k").names, means = "", h = "<dt>Head</dt><dd>layer " + l.layer + ", head " + d.head + "</dd>";
  var n = s.layers.reduce(function (a, x) { return a + x.heads.length; }, 0);
  V.facts.forEach(function (f) {
    var v = scoreAt(V, d, f.name), values = [];
    if (v == null) return;
    s.layers.forEach(function (x) { x.heads.forEach(function (y) { var w = scoreAt(V, y, f.name); if (w != null) values.push(w); }); });
    means += "<dt>" + esc(f.label) + "</dt><dd>" + esc(f.description) + "</dd>";
    h += '<dt title="' + esc(f.description) + '">' + esc(f.label) + "</dt><dd>" + factValue(f, v) + (n > 1 ? "<small>" + rankOf(v, values) + "</small>" : "") + "</dd>";
  });
  if (n > 1) h += '<dd class="w mute">Small: the place among the ' + n + " heads of the stack, 1 for the highest.</dd>";
  var sums = new Float32Array(map.columns), best = 0;
  for (var i = 0; i < map.values.length; i++) sums[i % map.columns] += map.values[i] / map.rows;
  sums.forEach(function (v, k) { if (v > sums[best]) best = k; });
  if (map.columns === K.length) h += '<dd class="w">Most looked at: <b>' + tok(K[best]) + "</b>, " + pc(sums[best]) + " of the weight, mean over all rows.</dd>";
  find(V, ".hc").innerHTML = h;
  find(V, ".means dl").innerHTML = means;
}
