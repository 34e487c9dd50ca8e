/* The heads of the chosen text: a viewer of its attention, and the heading that says what was found. */
var attention = null, attended = null;
/* The heading is the finding: which heads look at the fewest and at the most tokens. Gives the first: the viewer opens
   on the head that the heading names. */
function headsTitle() {
  var stacks = text().stacks.stacks || [], found = [], at = D.head_scores.findIndex(function (f) { return f.name === "spread"; });
  stacks.forEach(function (s, si) { s.layers.forEach(function (l) { l.heads.forEach(function (h) { if (h.scores[at] != null) found.push([h.scores[at], l.layer, h.head, s.name, si]); }); }); });
  found.sort(function (a, b) { return a[0] - b[0]; });
  if (!stacks.length) { $("h-heads").textContent = "The attention maps are not on this page"; return null; }
  if (!found.length) { $("h-heads").textContent = "What each head looks at"; return null; }
  var name = function (f) { return (stacks.length > 1 ? f[3].toLowerCase().replace(/, /g, " ") + ", l" : "l") + "ayer " + f[1] + ", head " + f[2]; }, a = found[0], b = found[found.length - 1];
  $("h-heads").textContent = found.length === 1 ? "The only head has a spread of " + a[0].toFixed(2) + " here" :
    b[0] - a[0] < 0.05 ? "All " + found.length + " heads spread their weight alike here, " + (a[0].toFixed(2) === b[0].toFixed(2) ? "at " : "from " + a[0].toFixed(2) + " to ") + b[0].toFixed(2) :
    "The sharpest head here is " + name(a) + "; the most even is " + name(b);
  return [a[4], a[1], a[2]];
}
function drawHeads() {
  var t = text(), there = !!t.stacks.stacks;
  if (attended === t) return;
  attended = t;
  var sharpest = headsTitle();
  $("toc-heads").textContent = $("h-heads").textContent;
  $("attention").hidden = !there;
  $("hdek").textContent = t.no_maps || "Spread 0: each " + NOUN.token + " looks at one " + NOUN.token + "; 1: at all alike. Layers and heads are numbered from 0, as in the code. A map shows where a head reads; it does not show what the answer depends on.";
  if (!there) return;
  if (attention) attention.show(t.stacks);
  else attention = window.attnprobe_viewer.mount($("attention"), t.stacks, { score_facts: D.head_scores, at: linkedHead(), hash: location.hash, first: sharpest, chosen: function (hash) { address({ head: hash.slice(1) }); } });
}
function startHeads() { listeners.push(drawHeads); }
