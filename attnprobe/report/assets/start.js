/* Wiring: every part, the theme, printing, resizing. */
var wasOpen = [], timer, wide = innerWidth;
function redraw() { strip(); rows(); curves(); spreadPlot(); scrollers(); }
/* Paper: tables are open, the theme is light by its style sheet, figures are as wide as the sheet. */
function startPrint() {
  addEventListener("beforeprint", function () {
    printing = true;
    all("details").forEach(function (d) { if (!d.open) { d.open = true; wasOpen.push(d); } });
    redraw();
  });
  addEventListener("afterprint", function () {
    wasOpen.forEach(function (d) { d.open = false; });
    wasOpen = [];
    printing = false;
    redraw();
  });
}
function startTheme() {
  $("theme").hidden = false;
  $("theme").onclick = function () {
    var next = THEMES[(THEMES.indexOf(document.documentElement.dataset.theme) + 1) % 3];
    keep("theme", next);
    setTheme(next);
  };
  matchMedia("(prefers-color-scheme:dark)").addEventListener("change", drawHeads);
}
function startNotes() {
  all(".frow[aria-label]").forEach(function (r) {
    r.onmouseenter = function () { showTip(r, esc(r.getAttribute("aria-label"))); };
    r.onmouseleave = hideTip;
  });
}
all("[data-script]").forEach(function (e) { e.hidden = false; });
switches("data-set", showSet);
startTexts();
startSpread();
startCurves();
startAgreement();
startHeads();
startList();
startChoosers();
startCopy();
startNotes();
startScrollers();
startPrint();
startTheme();
restore();
choose(linked() !== null ? linked() : kept().text || 0);
setTheme(kept().theme || "auto");
curves();
startNav();
startState();
addEventListener("resize", function () {
  clearTimeout(timer);
  timer = setTimeout(function () { if (innerWidth !== wide) { wide = innerWidth; redraw(); } }, 120);
});
document.documentElement.dataset.ready = "yes";
