/* What all parts share: the data, the chosen text, numbers, shapes, the note beside a token, the theme. */
var D = JSON.parse(document.getElementById("data").textContent);
/* What is explained, a unit of it, and what readers call that: text, token, word; or picture, patch. */
var NOUN = D.noun, capital = function (s) { return s[0].toUpperCase() + s.slice(1); };
var M = D.order, INFO = D.methods, now = 0, listeners = [];
var $ = function (id) { return document.getElementById(id); };
var all = function (query, from) { return Array.prototype.slice.call((from || document).querySelectorAll(query)); };
var esc = function (s) { return String(s).replace(/[&<>"']/g, function (c) { return "&#" + c.charCodeAt(0) + ";"; }); };
/* A token: kept apart from its surroundings for right-to-left text, its visible stand-ins greyed. */
var tok = function (s) { return "<bdi>" + esc(s).replace(/[␣⏎⇥␍⍽]/g, '<span class="iv">$&</span>') + "</bdi>"; };
var NB = "\u202f", MINUS = "\u2212";
var fix = function (v, d) { var s = v.toFixed(d); return +s === 0 ? s.replace("-", "") : s.replace("-", MINUS); };
var sgn = function (v, d) {
  if (v == null) return "–";
  var a = Math.abs(v).toFixed(d);
  return +a === 0 ? a : (v < 0 ? MINUS : "+") + a;
};
var pc = function (p, d) { return p == null ? "–" : fix(100 * p, d == null ? 1 : d) + NB + "%"; };
/* Width of the sheet, in the pixels of the page at the size that the print style gives it. */
var PAPER = 950, printing = false;
var phone = function () { return innerWidth <= 760; };
var colour = function (m) { return "var(--m" + M.indexOf(m) + ")"; };
function glyph(m) {
  return '<svg class="g' + (INFO[m].filled ? "" : " open") + '" style="color:' + colour(m) + '" aria-hidden="true"><use href="#g-' + INFO[m].shape + '"/></svg>';
}
function text() { return D.texts[now]; }
/* Shares of a row: each score over the sum of all sizes. */
function shares(t, m) {
  if (!t.shares) t.shares = Object.create(null);
  if (!t.shares[m]) {
    var s = t.methods[m].scores.reduce(function (a, v) { return a + Math.abs(v); }, 0) || 1;
    t.shares[m] = t.methods[m].scores.map(function (v) { return v / s; });
  }
  return t.shares[m];
}
/* A row of exclusive buttons, each with the attribute; what was chosen outlives a reload. */
function switches(attribute, chosen) {
  all("[" + attribute + "]").forEach(function (b) {
    b.onclick = function () {
      var value = b.getAttribute(attribute);
      press(b, attribute);
      keep(attribute, value);
      chosen(value);
    };
  });
}
function methodsOf(t) { return M.filter(function (m) { return t.methods[m]; }); }
function press(button, attribute) {
  all("[" + attribute + "]").forEach(function (b) { b.setAttribute("aria-pressed", b === button); });
}
/* The note beside a token or a head. */
var tip = $("tip");
function showTip(el, html, side) {
  tip.innerHTML = html;
  tip.style.display = "block";
  var r = el.getBoundingClientRect(), w = tip.offsetWidth, h = tip.offsetHeight;
  var left = Math.max(8, Math.min(innerWidth - w - 8, r.left + r.width / 2 - w / 2));
  var top = r.top - h - 8 > 50 ? r.top - h - 8 : r.bottom + 8;
  if (side && !phone()) {
    left = r.right + w + 16 < innerWidth ? r.right + 10 : r.left - w - 10;
    top = Math.max(54, r.top + r.height / 2 - h / 2);
  }
  tip.style.left = left + "px";
  tip.style.top = top + "px";
}
function hideTip() { tip.style.display = "none"; }
/* Choosing a text: every chooser and the list follow. */
function choose(index) {
  now = Math.max(0, Math.min(D.texts.length - 1, index));
  all(".pick").forEach(function (p) {
    p.querySelector("select").value = now;
    p.querySelector("[data-step='-1']").disabled = now === 0;
    p.querySelector("[data-step='1']").disabled = now === D.texts.length - 1;
  });
  all("#list tbody tr").forEach(function (r) { r.classList.toggle("on", +r.dataset.text === now); });
  listeners.forEach(function (f) { f(); });
}
/* Which methods the figures show where there are many: at most six, or all. */
var shownSet = D.main.length < M.length ? "main" : "all", setListeners = [];
function shownMethods() { return shownSet === "main" ? D.main : M; }
function showSet(which) {
  shownSet = which;
  all("[data-set]").forEach(function (b) { b.setAttribute("aria-pressed", b.dataset.set === which); });
  setListeners.forEach(function (f) { f(); });
}
/* Theme: the system's, light, dark. */
var THEMES = ["auto", "light", "dark"], SAID = { auto: "system", light: "light", dark: "dark" };
function setTheme(t) {
  document.documentElement.dataset.theme = t;
  $("theme").textContent = "Theme: " + SAID[t];
  $("theme").setAttribute("aria-label", "Colour theme: " + SAID[t] + ". Press to change.");
  drawHeads();
}
