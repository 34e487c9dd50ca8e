/* From the bytes of the page to numbers: codes, maps, norms. A number is peak × (code / n)². */
function unpack(text) {
  var raw = atob(text), bytes = new Uint8Array(raw.length);
  for (var i = 0; i < raw.length; i++) bytes[i] = raw.charCodeAt(i);
  var stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Response(stream).arrayBuffer().then(function (b) { return new Uint8Array(b); });
}
/* The number of each of the 256 codes. */
function table(scale, peak) {
  var numbers = new Float32Array(256);
  for (var c = 0; c < 256; c++) {
    var size = scale.signed && c > 127 ? c - 128 : c, share = size / scale.n;
    numbers[c] = (scale.signed && c > 127 ? -1 : 1) * (peak == null ? scale.peak : peak) * share * share;
  }
  return numbers;
}
function stackOf(V) { return V.data.stacks[V.state.stack]; }
function layerOf(V) { return stackOf(V).layers[V.state.layer]; }
function headOf(V) { return layerOf(V).heads[V.state.head]; }
function sideOf(V, layer, which) { return V.data.sides[layer[which]]; }
function scoreAt(V, head, name) {
  var i = V.facts.findIndex(function (f) { return f.name === name; });
  return i < 0 ? null : head.scores[i];
}
/* The measures that this stack has numbers for. */
function known(V) {
  var s = stackOf(V), l = s.layers;
  return Object.keys(MEASURES).filter(function (m) {
    return m === "weight" || (m === "effect" ? s.effect : l.some(function (x) { return x[m]; }) && (m !== "value" || !l.some(function (x) { return x.written; })));
  });
}
/* Lengths of the values of one head, a number a key: two planes of bytes, in 65535 even steps. */
function norms(V, layer, at, name) {
  var where = layer[name], n = sideOf(V, layer, "k").names.length, all = layer.heads.length * n, found = new Float32Array(n);
  for (var k = 0; k < n; k++) {
    var i = where[0] + at * n + k;
    found[k] = (V.bytes[i] + 256 * V.bytes[i + all]) / 65535 * where[1];
  }
  return found;
}
/* One head under a measure: {rows, columns, values, pooled}; kept until the text changes. */
function mapOf(V, s, layer, at, measure) {
  var head = layer.heads[at], kept = head.kept || (head.kept = {});
  if (kept[measure]) return kept[measure];
  var from = measure === "effect" ? head.effect : head, scale = measure === "effect" ? s.effect : s.scale;
  if (!from) return null;
  var full = from.full != null, Q = sideOf(V, layer, "q").names.length, K = sideOf(V, layer, "k").names.length;
  var rows = full ? Q : from.size[0], columns = full ? K : from.size[1], start = full ? from.full : from.pool;
  var numbers = table(scale, full ? null : from.peak), values = new Float32Array(rows * columns);
  for (var i = 0; i < values.length; i++) values[i] = numbers[V.bytes[start + i]];
  if ((measure === "value" || measure === "written") && layer[measure]) {
    var lengths = blocked(norms(V, layer, at, measure), columns);
    for (i = 0; i < values.length; i++) values[i] = Math.abs(values[i]) * lengths[i % columns];
  }
  return (kept[measure] = { rows: rows, columns: columns, values: values, pooled: rows !== Q || columns !== K, full: full });
}
/* Numbers of a side as means over the blocks that a pooled map has. */
function blocked(numbers, size) {
  if (numbers.length === size) return numbers;
  return Float32Array.from(blocksOf(numbers.length, size), function (b) {
    var sum = 0;
    for (var i = b[0]; i < b[1]; i++) sum += numbers[i];
    return sum / (b[1] - b[0]);
  });
}
function blocksOf(n, size) {
  return Array.from({ length: size }, function (_, i) { return [Math.floor(i * n / size), Math.ceil((i + 1) * n / size)]; });
}
/* The largest weights of each row of a head that is not full: [[key, number], …] a row. */
function topOf(V, s, layer, at, measure) {
  var head = layer.heads[at], from = measure === "effect" ? head.effect : head;
  if (!from || !from.top) return null;
  var n = sideOf(V, layer, "q").names.length, k = from.top[1], start = from.top[0], plane = n * k;
  var numbers = table(measure === "effect" ? s.effect : s.scale);
  var lengths = (measure === "value" || measure === "written") && layer[measure] ? norms(V, layer, at, measure) : null;
  return Array.from({ length: n }, function (_, q) {
    return Array.from({ length: k }, function (_, j) {
      var i = start + q * k + j, key = V.bytes[i] + 256 * V.bytes[i + plane], v = numbers[V.bytes[start + 2 * plane + q * k + j]];
      return [key, lengths ? Math.abs(v) * lengths[key] : v];
    });
  });
}
/* Rows and columns that are shown, and the numbers on them, by the filters. */
function shown(V) {
  var s = stackOf(V), l = layerOf(V), map = mapOf(V, s, l, V.state.head, V.state.measure), st = V.state;
  var all = function (n) { return Array.from({ length: n }, function (_, i) { return i; }); };
  var without = function (side) {
    var special = sideOf(V, l, side).special;
    return all(sideOf(V, l, side).names.length).filter(function (i) { return special.indexOf(i) < 0; });
  };
  var out = !map.pooled && st.special !== "shown", rows = out ? without("q") : all(map.rows), columns = out ? without("k") : all(map.columns);
  var values = new Float32Array(rows.length * columns.length);
  rows.forEach(function (q, i) {
    var sum = 0, total = 0;
    columns.forEach(function (k, j) { var v = map.values[q * map.columns + k]; values[i * columns.length + j] = v; sum += v; });
    for (var k = 0; k < map.columns; k++) total += map.values[q * map.columns + k];
    if (out && st.special === "shares" && !MEASURES[st.measure].signed && sum > 0) for (var j = 0; j < columns.length; j++) values[i * columns.length + j] *= total / sum;
  });
  return { rows: rows, columns: columns, values: values, pooled: map.pooled, full: map.full };
}
/* What a row ("q") or a column ("k") is called; s: of several. */
function unitOf(V, which, s) { return sideOf(V, layerOf(V), which).patches ? "patch" + (s ? "es" : "") : "token" + (s ? "s" : ""); }
/* Names of the rows or columns that are shown: tokens, or the first and last of a block. */
function namesOf(V, which, indices, size) {
  var names = sideOf(V, layerOf(V), which).names;
  if (names.length === size) return indices.map(function (i) { return names[i]; });
  var blocks = blocksOf(names.length, size);
  return indices.map(function (i) { var b = blocks[i]; return names[b[0]] + (b[1] - b[0] > 1 ? " … " + names[b[1] - 1] : ""); });
}
/* Between which numbers colours go: from 0 to 1 (weights of all heads alike; else the largest of the stack), from 0 to
   the largest of the head, or, for contrast, from its least. */
function rangeOf(V, values) {
  var m = V.state.measure, s = stackOf(V), most = 0, least = Infinity;
  if (V.state.full === "all") return { low: 0, most: m === "weight" ? Math.max(1, s.scale.peak) : m === "effect" ? s.effect.peak || 1 : largestOf(V, s, m) };
  for (var i = 0; i < values.length; i++) { var v = Math.abs(values[i]); if (v > most) most = v; if (v < least && v > 0) least = v; }
  return { low: V.state.full === "contrast" && !MEASURES[m].signed && least < most ? least : 0, most: most || 1 };
}
/* Whether all weights of a stack are near what an even look gives, so that maps have no contrast of their own. */
function nearEven(V, s) {
  var l = s.layers[s.layers.length - 1];
  return s.scale.peak < Math.min(0.25, 3 / sideOf(V, l, "k").names.length);
}
/* A causal stack: no query sees a later key. */
function isCausal(V, s, layer, at) {
  var map = layer.q === layer.k && s.kind === "self" && mapOf(V, s, layer, at, "weight"), n = map && map.columns, slack = map && map.pooled ? 1 : 0;
  return !!map && n > 1 && map.values.every(function (v, i) { return v === 0 || i % n <= Math.floor(i / n) + slack; });
}
/* The largest value-weighted number of a stack; looked for once. */
function largestOf(V, s, measure) {
  var kept = s.largest || (s.largest = {});
  if (kept[measure] == null) {
    var most = 0;
    s.layers.forEach(function (l) { l.heads.forEach(function (h, at) { var v = mapOf(V, s, l, at, measure).values; for (var i = 0; i < v.length; i++) if (v[i] > most) most = v[i]; }); });
    kept[measure] = most || 1;
  }
  return kept[measure];
}
