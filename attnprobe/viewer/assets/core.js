/* What all parts share: elements, escaping, numbers, the measures that a map can show. */
var esc = function (s) { return String(s).replace(/[&<>"']/g, function (c) { return "&#" + c.charCodeAt(0) + ";"; }); };
/* A token: kept apart from its surroundings for right-to-left text, its visible stand-ins greyed. */
var tok = function (s) { return "<bdi>" + esc(s).replace(/[␣⏎⇥␍⍽]/g, '<span class="iv">$&</span>') + "</bdi>"; };
var clip = function (s, n) { var a = Array.from(s); return a.length > n ? a.slice(0, n - 1).join("") + "…" : s; };
var NB = "\u202f", MINUS = "\u2212";
var fix = function (v, d) { var s = v.toFixed(d); return +s === 0 ? s.replace("-", "") : s.replace("-", MINUS); };
var sgn = function (v, d) {
  var a = Math.abs(v).toFixed(d);
  return +a === 0 ? a : (v < 0 ? MINUS : "+") + a;
};
/* As many digits as a number needs to be told from 0. */
var digits = function (v) {
  var size = Math.abs(v);
  return size >= 100 || size === 0 ? 0 : size >= 10 ? 1 : size >= 0.1 ? 2 : Math.min(6, 1 - Math.floor(Math.log10(size)));
};
var num = function (v) { return fix(v, digits(v)); };
var pc = function (p) {
  if (p === 0) return "0" + NB + "%";
  if (p > 0 && p < 0.00005) return "<" + NB + "0.01" + NB + "%";
  return fix(100 * p, p !== 0 && Math.abs(p) < 0.001 ? 2 : 1) + NB + "%";
};
var rankOf = function (value, values) {
  var rank = 1;
  for (var i = 0; i < values.length; i++) if (values[i] > value) rank++;
  return rank;
};
/* What a cell can show. unsigned: no direction, so no hue. */
var MEASURES = {
  weight: { label: "Weight", told: "weight", signed: false },
  written: { label: "Weight × what the value writes", told: "|α v W_O|", signed: false },
  value: { label: "Weight × length of the value", told: "|α v|", signed: false },
  effect: { label: "Effect (attention × gradient)", told: "effect", signed: true }
};
/* Numbers of a legend: no more digits than it takes. */
var short = function (p) { return p >= 0.0995 ? Math.round(100 * p) + NB + "%" : p >= 0.00095 ? String(+(100 * p).toPrecision(1)) + NB + "%" : pc(p); };
function told(V, v) {
  var m = V.state.measure;
  return m === "weight" ? pc(v) : MEASURES[m].signed ? sgn(v, digits(v)) : num(v);
}
function make(tag, className, html) {
  var e = document.createElement(tag);
  if (className) e.className = className;
  if (html != null) e.innerHTML = html;
  return e;
}
function find(V, query) { return V.root.querySelector(query); }
function all(V, query) { return Array.prototype.slice.call(V.root.querySelectorAll(query)); }
var STEPS = { ArrowRight: [0, 1], ArrowLeft: [0, -1], ArrowDown: [1, 0], ArrowUp: [-1, 0] };
