/* Colours, mixed in OKLab from the theme's variables as the figures mix them (Ottosson 2020). */
var CONES = [[0.4122214708, 0.5363325363, 0.0514459929], [0.2119034982, 0.6806995451, 0.1073969566], [0.0883024619, 0.2817188376, 0.6299787005]];
var LAB = [[0.2104542553, 0.793617785, -0.0040720468], [1.9779984951, -2.428592205, 0.4505937099], [0.0259040371, 0.7827717662, -0.808675766]];
var CONES_BACK = [[4.0767416621, -3.3077115913, 0.2309699292], [-1.2684380046, 2.6097574011, -0.3413193965], [-0.0041960863, -0.7034186147, 1.707614701]];
var LAB_BACK = [[1, 0.3963377774, 0.2158037573], [1, -0.1055613458, -0.0638541728], [1, -0.0894841775, -1.291485548]];
function times(m, v) { return m.map(function (r) { return r[0] * v[0] + r[1] * v[1] + r[2] * v[2]; }); }
function toLab(rgb) {
  var linear = rgb.map(function (c) { c /= 255; return c <= 0.04045 ? c / 12.92 : Math.pow((c + 0.055) / 1.055, 2.4); });
  return times(LAB, times(CONES, linear).map(Math.cbrt));
}
function toRgb(lab) {
  return times(CONES_BACK, times(LAB_BACK, lab).map(function (c) { return c * c * c; })).map(function (c) {
    c = c <= 0.0031308 ? 12.92 * c : 1.055 * Math.pow(c, 1 / 2.4) - 0.055;
    return Math.round(255 * Math.min(1, Math.max(0, c)));
  });
}
/* A variable of the theme as [red, green, blue]. */
function variable(V, name) {
  var v = getComputedStyle(V.host).getPropertyValue(name).trim().replace("#", "");
  if (v.length === 3) v = v.replace(/./g, "$&$&");
  return [0, 2, 4].map(function (i) { return parseInt(v.substr(i, 2), 16); });
}
var SHADES = 256;
/* From one colour to another, 256 shades, even in OKLab. */
function shades(from, to) {
  var a = toLab(from), b = toLab(to);
  return Array.from({ length: SHADES }, function (_, i) { return toRgb(a.map(function (v, j) { return v + (b[j] - v) * i / (SHADES - 1); })); });
}
/* The theme's scales, made anew when the theme changes: map (no direction), and for, against. */
function theme(V) {
  var of = function (from, to) { return shades(variable(V, from), variable(V, to)); };
  V.shades = { map: of("--map0", "--map1"), pos: of("--zero", "--pos"), neg: of("--zero", "--neg") };
}
/* The colour of a number: grows with the square root of its share of the range. */
function colourOf(V, measure, range) {
  var s = V.shades, signed = MEASURES[measure].signed;
  return function (v) {
    var shade = Math.round((SHADES - 1) * Math.sqrt(Math.min(1, Math.max(0, (Math.abs(v) - range.low) / (range.most - range.low)))));
    return (signed ? (v < 0 ? s.neg : s.pos) : s.map)[shade];
  };
}
/* Numbers [rows columns] onto a canvas, a pixel a number (or `by` a side); what `keep` refuses stays at 0's colour. */
function paint(canvas, rows, columns, values, colour, by, keep) {
  var context = canvas.getContext("2d"), side = by || 1;
  canvas.width = columns * side;
  canvas.height = rows * side;
  var pixels = context.createImageData(canvas.width, canvas.height), data = new Uint32Array(pixels.data.buffer), width = canvas.width;
  for (var q = 0; q < rows; q++) for (var k = 0; k < columns; k++) {
    var v = values[q * columns + k], c = colour(keep && !keep(v) ? 0 : v), word = (255 << 24) | (c[2] << 16) | (c[1] << 8) | c[0];
    for (var y = 0; y < side; y++) { var start = (q * side + y) * width + k * side; data.fill(word, start, start + side); }
  }
  context.putImageData(pixels, 0, 0);
  return canvas;
}
/* A legend: swatches from least to most with their numbers; where every number is 0, that. */
function legend(V, map) {
  var m = V.state.measure, low = map.range.low, most = map.range.most, signed = MEASURES[m].signed, colour = colourOf(V, m, map.range), shares = signed ? [-1, -0.5, -0.1, 0, 0.1, 0.5, 1] : low ? [0, 0.1, 0.25, 0.5, 1] : [0, 0.01, 0.05, 0.1, 0.25, 0.5, 1];
  if (!map.values.some(function (v) { return v !== 0; })) return '<p class="note sm">Every number here is 0.</p>';
  var say = function (v) { return m === "weight" && low ? fix(100 * v, Math.max(0, 2 - Math.floor(Math.log10(100 * most)))) + NB + "%" : m === "weight" && most === 1 ? short(v) : told(V, v); };
  var at = function (s) { return signed ? s * most : low + s * (most - low); };
  return '<div class="ramp" role="img" aria-label="Colours from ' + esc(say(signed ? -most : low)) + " to " + esc(say(most)) + '">' + shares.map(function (s) {
    return '<span><i style="background:rgb(' + colour(at(s)).join(",") + ')"></i>' + esc(say(at(s))) + "</span>";
  }).join("") + "</div>" + contrastWords(V, map);
}
/* Colours that do not begin at 0 say so, and why they were chosen. */
function contrastWords(V, map) {
  if (V.state.full !== "contrast" || !map.range.low) return "";
  return '<p class="note sm">Colours go from this head’s least to its most' + (V.state.measure === "weight" && nearEven(V, stackOf(V)) ? ": its weights are near even, and from 0 on all cells would look alike." : ", not from 0.") + "</p>";
}
