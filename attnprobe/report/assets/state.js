/* Where the reader is: text, switches and theme outlive a reload. #text-3 opens the third text, #head=2.1 a head;
   #text-3&head=2.1&by=spread both, with the heads by their spread. */
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
  var found = /(?:^#|&)text-(\d+)(?=&|$)/.exec(location.hash);
  return found && +found[1] >= 1 && +found[1] <= D.texts.length ? +found[1] - 1 : null;
}
/* The head that the address asks for. */
function linkedHead() { return window.attnprobe_viewer.headIn(location.hash); }
/* What the address says: the text and the head that were chosen, with how heads are shown. */
function viewPart(hash) { return hash.slice(1).split("&").filter(function (part) { return /^\w+=/.test(part); }).join("&"); }
var addressed = { text: linked() === null ? "" : "text-" + (linked() + 1), head: linkedHead() ? viewPart(location.hash) : "" };
function address(more) {
  Object.keys(more).forEach(function (name) { addressed[name] = more[name]; });
  try { history.replaceState(history.state, "", "#" + [addressed.text, addressed.head].filter(Boolean).join("&")); } catch (e) { return; }
}
/* A text chosen by hand: kept, and in the address, so that the link leads to it. */
function pick(index) {
  choose(index);
  keep("text", now);
  address({ text: "text-" + (now + 1) });
}
function reloaded() {
  var entry = performance.getEntriesByType("navigation")[0];
  return !!entry && (entry.type === "reload" || entry.type === "back_forward");
}
function follow(how) {
  var index = linked(), head = linkedHead(), hash = location.hash;
  if (index === null && !head) return;
  if (index !== null) { choose(index); keep("text", now); }
  address({ text: index === null ? addressed.text : "text-" + (now + 1), head: head ? viewPart(hash) : addressed.head });
  if (head && attention) attention.follow(hash); // and then the address names what is there
  $(head ? "heads" : "text").scrollIntoView({ behavior: how === "at once" ? "instant" : "auto" });
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
