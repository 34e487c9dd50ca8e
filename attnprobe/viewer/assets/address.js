/* The address: which head is shown, and how, so that a link leads a colleague to the same. What is unknown or broken
   in it is passed over. #head=1:2.1&by=spread: layer 2, head 1 of the second group, the heads coloured by their spread. */
function partsOf(hash) {
  var found = Object.create(null);
  (hash || "").replace(/^#/, "").split("&").forEach(function (part) {
    var at = part.indexOf("=");
    try { if (at > 0) found[part.slice(0, at)] = decodeURIComponent(part.slice(at + 1)); } catch (error) { return; }
  });
  return found;
}
/* Group, layer and head; null where the address names none. */
function headIn(hash) {
  var found = /^(?:(\d+):)?(\d+)\.(\d+)$/.exec(partsOf(hash).head || "");
  return found && [+(found[1] || 0), +found[2], +found[3]];
}
/* Beside the head, by its name in the address: how it is said of a state (empty: as a viewer opens), and put into one. */
var SAID = {
  by: { of: function (V) { return V.state.show === "maps" ? "" : V.state.show; }, put: function (V, v) { if (v === "maps" || scoresKnown(V).some(function (f) { return f.name === v; })) V.state.show = v; } },
  scale: { of: function (V) { return V.state.measure === "weight" ? "" : V.state.measure; }, put: function (V, v) { if (known(V).indexOf(v) >= 0) V.state.measure = v; } },
  colour: { of: function (V) { return V.coloured ? V.state.full : ""; }, put: function (V, v) {
    if (["all", "head"].concat(MEASURES[V.state.measure].signed ? [] : ["contrast"]).indexOf(v) < 0) return;
    V.state.full = v;
    V.coloured = true;
  } },
  special: { of: function (V) { return V.state.special === "shown" ? "" : V.state.special; }, put: function (V, v) { if (["shown", "hidden", "shares"].indexOf(v) >= 0) V.state.special = v; } },
  below: { of: function (V) { return V.state.cut ? String(CUTS[V.state.cut]) : ""; }, put: function (V, v) { if (CUTS.map(String).indexOf(v) >= 0) cutAt(V, CUTS.map(String).indexOf(v)); } },
  columns: { of: function (V) { return V.state.columns === "two" ? "two" : ""; }, put: function (V, v) { inColumns(V, v === "two"); } },
  large: { of: function (V) { return V.state.large ? "yes" : ""; }, put: function (V, v) { enlarge(V, v === "yes"); } }
};
function hashOf(V) {
  return "#head=" + (V.state.stack ? V.state.stack + ":" : "") + layerOf(V).layer + "." + headOf(V).head + Object.keys(SAID).map(function (name) {
    var said = SAID[name].of(V);
    return said ? "&" + name + "=" + encodeURIComponent(said) : "";
  }).join("");
}
/* What the address says of the view; what it is silent on stays. */
function applied(V, hash) {
  var parts = partsOf(hash);
  Object.keys(SAID).forEach(function (name) { if (parts[name] != null) SAID[name].put(V, parts[name]); });
}
function tellAddress(V) { if (V.options.chosen && V.data) V.options.chosen(hashOf(V)); }
/* The head and the view of an address; before there is data, once it is there. */
function follow(V, hash) {
  var at = headIn(hash);
  V.options.hash = hash;
  if (at) V.options.at = at;
  if (!V.data) return;
  if (at) goTo(V, at);
  applied(V, hash);
  controls(V);
  redraw(V);
  tellAddress(V);
}
/* On a page of its own the address names what is shown; a frame without an address goes without. */
function linkHeads(V) {
  V.options.at = headIn(location.hash);
  V.options.hash = location.hash;
  V.options.chosen = function (hash) { try { history.replaceState(null, "", hash); } catch (error) { return; } };
  addEventListener("hashchange", function () { if (Object.keys(partsOf(location.hash)).length) follow(V, location.hash); });
}
