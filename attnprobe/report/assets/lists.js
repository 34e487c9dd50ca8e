/* The list of texts, the choosers, the bar that follows, copying the command. */
function sortList(th, column) {
  var up = th.getAttribute("aria-sort") === "descending", body = document.querySelector("#list tbody");
  all("#list thead th").forEach(function (x) { x.removeAttribute("aria-sort"); });
  th.setAttribute("aria-sort", up ? "ascending" : "descending");
  var key = function (r) { var c = r.children[column]; return th.dataset.sort === "n" ? +c.dataset.v : c.textContent; };
  all("tr", body).sort(function (a, b) {
    var x = key(a), y = key(b);
    return (x < y ? -1 : x > y ? 1 : 0) * (up ? 1 : -1);
  }).forEach(function (r) { body.appendChild(r); });
}
function startList() {
  var list = $("list"), more = $("more");
  if (!list) return;
  all("thead th", list).forEach(function (th, column) {
    th.innerHTML = '<button type="button">' + th.innerHTML + "</button>";
    th.firstChild.onclick = function () { sortList(th, column); };
  });
  if (!list.dataset.most) return;
  list.classList.add("short");
  more.hidden = false;
  more.onclick = function () { list.classList.remove("short"); more.hidden = true; };
}
function startChoosers() {
  all(".pick").forEach(function (p) {
    p.hidden = false;
    p.querySelector("select").onchange = function () { pick(+this.value); };
    all("[data-step]", p).forEach(function (b) { b.onclick = function () { pick(now + +b.dataset.step); }; });
  });
}
/* The bar marks the section that is being read, and keeps its link in sight. */
function startNav() {
  var nav = $("nav"), links = all("a", nav), sections = links.map(function (a) { return $(a.getAttribute("href").slice(1)); });
  var mark = function () {
    var at = -1;
    sections.forEach(function (s, i) { if (s.getBoundingClientRect().top <= 90) at = i; });
    if (at < 0) nav.scrollLeft = 0;
    links.forEach(function (a, i) {
      if (i !== at) a.removeAttribute("aria-current");
      else if (!a.hasAttribute("aria-current")) {
        a.setAttribute("aria-current", "true");
        nav.scrollLeft = a.offsetLeft - nav.offsetLeft - nav.clientWidth / 2 + a.offsetWidth / 2;
      }
    });
  };
  var waiting = false;
  addEventListener("scroll", function () {
    if (waiting) return;
    waiting = true;
    requestAnimationFrame(function () { waiting = false; mark(); });
  }, { passive: true });
  mark();
}
/* Tables that are wider than the screen can be scrolled by keyboard, the others are no stop on the way. */
function scrollers() {
  all(".scroll").forEach(function (box) {
    var wider = box.scrollWidth > box.clientWidth + 1;
    if (!wider) { box.removeAttribute("tabindex"); box.removeAttribute("role"); box.removeAttribute("aria-label"); return; }
    box.tabIndex = 0;
    box.setAttribute("role", "group");
    box.setAttribute("aria-label", "Table, scrolls sideways");
  });
}
function startScrollers() {
  all("details").forEach(function (d) { d.addEventListener("toggle", scrollers); });
  listeners.push(scrollers);
  setListeners.push(scrollers);
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
