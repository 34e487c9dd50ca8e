/* Where the reader is: text, switches and theme outlive a reload; #text-3 opens the third text. */
var PLACE = "attnprobe:" + location.pathname;
/* Storage may be forbidden (a frame, a private window); the page then forgets, and works. */
function kept() {
  try { return JSON.parse(sessionStorage.getItem(PLACE)) || {}; } catch (e) { return {}; }
}
function keep(name, value) {
  try {
    var state = kept();
    state[name] = value;
    sessionStorage.setItem(PLACE, JSON.stringify(state));
  } catch (e) { return; }
}
/* The number of the text that the address asks for, from 0; null where it asks for none. */
function linked() {
  var found = /^#text-(\d+)$/.exec(location.hash);
  return found && +found[1] >= 1 && +found[1] <= D.texts.length ? +found[1] - 1 : null;
}
/* The head that the address asks for: #head=2.1. */
function linkedHead() { return window.attnprobe_viewer.headIn(location.hash); }
/* A text chosen by hand: kept, and in the address, so that the link leads to it. */
function pick(index) {
  choose(index);
  keep("text", now);
  try { history.replaceState(history.state, "", "#text-" + (now + 1)); } catch (e) { return; }
}
function reloaded() {
  var entry = performance.getEntriesByType("navigation")[0];
  return !!entry && (entry.type === "reload" || entry.type === "back_forward");
}
function follow(how) {
  var index = linked(), head = linkedHead();
  if (head && attention) { attention.go(head); $("heads").scrollIntoView({ behavior: how === "at once" ? "instant" : "auto" }); }
  if (index === null) return;
  choose(index);
  keep("text", now);
  $("text").scrollIntoView({ behavior: how === "at once" ? "instant" : "auto" });
}
/* The switches as they were: each is pressed again. */
function restore() {
  var state = kept();
  Object.keys(state).forEach(function (name) {
    if (name.slice(0, 5) !== "data-") return;
    var button = all("[" + name + "]").filter(function (b) { return b.getAttribute(name) === state[name]; })[0];
    if (button) button.click();
  });
  all("details").forEach(function (d, i) { if ((state.open || []).indexOf(i) >= 0) d.open = true; });
}
function startState() {
  addEventListener("hashchange", follow);
  all("details").forEach(function (d) {
    d.addEventListener("toggle", function () {
      if (printing) return;
      keep("open", all("details").map(function (x, i) { return x.open ? i : -1; }).filter(function (i) { return i >= 0; }));
    });
  });
  if ((linked() !== null || linkedHead()) && !reloaded()) follow("at once");
}
