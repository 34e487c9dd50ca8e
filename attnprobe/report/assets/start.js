/* Wiring: choosers, the list of texts, theme, copying, printing, resizing. */
function startList() {
  var body = document.querySelector("#list tbody");
  if (!body) return;
  body.addEventListener("click", function (e) { var a = e.target.closest("[data-go]"); if (a) choose(+a.dataset.go); });
  all("#list thead th").forEach(function (th, column) {
    th.innerHTML = '<button type="button">' + th.innerHTML + "</button>";
    th.firstChild.onclick = function () {
      var up = th.getAttribute("aria-sort") === "descending";
      all("#list thead th").forEach(function (x) { x.removeAttribute("aria-sort"); });
      th.setAttribute("aria-sort", up ? "ascending" : "descending");
      var key = function (r) { var c = r.children[column]; return th.dataset.sort === "n" ? +c.dataset.v : c.textContent; };
      all("tr", body).sort(function (a, b) { var x = key(a), y = key(b); return (x < y ? -1 : x > y ? 1 : 0) * (up ? 1 : -1); }).forEach(function (r) { body.appendChild(r); });
    };
  });
}
function startChoosers() {
  all(".pick").forEach(function (p) {
    p.hidden = false;
    p.querySelector("select").onchange = function () { choose(+this.value); };
    all("[data-step]", p).forEach(function (b) { b.onclick = function () { choose(now + +b.dataset.step); }; });
  });
}
function startCopy() {
  var button = $("copy");
  if (!button) return;
  button.onclick = function () {
    var said = $("cmd").textContent, done = navigator.clipboard ? navigator.clipboard.writeText(said) : Promise.reject();
    done.then(function () { button.textContent = "Copied"; }, function () {
      var r = document.createRange();
      r.selectNodeContents($("cmd"));
      getSelection().removeAllRanges();
      getSelection().addRange(r);
      button.textContent = "Selected: press Ctrl+C";
    });
  };
}
all("[data-script]").forEach(function (e) { e.hidden = false; });
$("theme").hidden = false;
$("theme").onclick = function () { setTheme(THEMES[(THEMES.indexOf(document.documentElement.dataset.theme) + 1) % 3]); };
matchMedia("(prefers-color-scheme:dark)").addEventListener("change", drawHeads);
startTexts();
startCurves();
startAgreement();
startHeads();
startList();
startChoosers();
startCopy();
all(".frow[aria-label]").forEach(function (r) {
  r.onmouseenter = function () { showTip(r, esc(r.getAttribute("aria-label"))); };
  r.onmouseleave = hideTip;
});
choose(0);
setTheme("auto");
curves();
var wasOpen = [];
addEventListener("beforeprint", function () { all("details").forEach(function (d) { if (!d.open) { d.open = true; wasOpen.push(d); } }); });
addEventListener("afterprint", function () { wasOpen.forEach(function (d) { d.open = false; }); wasOpen = []; });
var timer, wide = innerWidth;
addEventListener("resize", function () {
  clearTimeout(timer);
  timer = setTimeout(function () { if (innerWidth !== wide) { wide = innerWidth; rows(); curves(); } }, 120);
});
document.documentElement.dataset.ready = "yes";
