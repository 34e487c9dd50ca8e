/* A viewer in an element: its controls, its state, and what is drawn when something is chosen. */
var FRAME = '<div class="av"><div class="ctrl"></div><div class="hg"><div class="ovpart"><div class="mh"><span>Layer (down) × head (across)</span><button type="button" class="large" aria-pressed="false">Enlarge</button></div><p class="note sm ovs"></p><div class="ovbox"></div><div class="ovleg"></div></div>' +
  '<div class="rest"><div class="two"><div class="mid"><figure class="mapbox"><figcaption class="mh mapt"></figcaption><p class="note sm maps"></p><div class="map"></div><p class="now mnow" aria-live="polite"></p><div class="mapleg"></div></figure></div>' +
  '<div class="side"><figure class="picbox" hidden><figcaption class="mh pict"></figcaption><p class="note sm picnote"></p><div class="picwho seg"></div><div class="pic"></div></figure>' +
  '<figure class="arcbox"><figcaption class="mh"><span>Arcs</span><button type="button" class="cols" aria-pressed="false">Two columns</button></figcaption><p class="note sm arcs"></p><div class="arc"></div><p class="now anow" aria-live="polite"></p></figure></div></div></div></div><div class="below"><details class="cardbox" open><summary>The head in numbers</summary><dl class="hc"></dl><details class="means"><summary>What these scores mean</summary><dl></dl></details></details><div class="cellbox"></div></div><p class="note sm foot"></p></div>';
function option(value, label, on) { return '<option value="' + esc(value) + '"' + (on ? " selected" : "") + ">" + esc(label) + "</option>"; }
function choice(name, label, options) { return options.length < 2 ? "" : '<label><span>' + label + '</span><select data-set="' + name + '">' + options.join("") + "</select></label>"; }
function controls(V) {
  // Signed numbers have no least to be drawn from.
  if (MEASURES[V.state.measure].signed && V.state.full === "contrast") V.state.full = "all";
  var st = V.state, s = stackOf(V), special = s.layers.some(function (l) { return sideOf(V, l, "k").special.length; });
  var pick = function (name, pairs) { return pairs.map(function (p) { return option(p[0], p[1], String(st[name]) === String(p[0])); }); };
  find(V, ".ctrl").innerHTML = choice("stack", "Stack", pick("stack", V.data.stacks.map(function (x, i) { return [i, x.name]; }))) +
    choice("show", "Heads by", pick("show", [["maps", "Their maps"]].concat(scoresKnown(V).map(function (f) { return [f.name, f.label]; })))) +
    choice("measure", "Scale by", pick("measure", known(V).map(function (m) { return [m, MEASURES[m].label]; }))) +
    choice("full", "Full colour", pick("full", [["all", st.measure === "weight" ? "at 100 %, all heads alike" : "at the largest of all heads"], ["head", "at the largest of each head"]].concat(MEASURES[st.measure].signed ? [] : [["contrast", "each head from least to most"]]))) +
    (special ? choice("special", "Special tokens", pick("special", [["shown", "Shown"], ["hidden", "Left out"], ["shares", "Left out, rows stretched"]])) : "") +
    '<label><span>Hide below</span><input type="range" min="0" max="10" step="1" value="' + V.state.cut + '" aria-label="Hide numbers below this share of full colour" data-cut><output>' + cutWords(V) + "</output></label>";
  all(V, "[data-set]").forEach(function (e) { e.onchange = function () { set(V, e.dataset.set, e.value); }; });
  find(V, "[data-cut]").oninput = function () { cutAt(V, +this.value); find(V, "output").textContent = cutWords(V); drawHead(V); tellAddress(V); };
}
var CUTS = [0, 0.001, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.8];
function cutAt(V, cut) { V.state.cut = cut; V.state.threshold = CUTS[cut]; }
function enlarge(V, on) { V.state.large = on; find(V, ".large").setAttribute("aria-pressed", on); find(V, ".hg").classList.toggle("wide", on); }
function inColumns(V, two) { V.state.columns = two ? "two" : "one"; find(V, ".cols").setAttribute("aria-pressed", two); }
function cutWords(V) {
  if (!V.state.threshold) return "nothing";
  return V.state.measure === "weight" && V.state.full === "all" ? short(CUTS[V.state.cut]) : short(CUTS[V.state.cut]) + " of full colour";
}
function set(V, name, value) {
  var st = V.state, active = V.root.activeElement && V.root.activeElement.dataset.set;
  st[name] = name === "stack" ? +value : value;
  if (name === "stack") openStack(V);
  if (name === "full") V.coloured = true;
  if (name !== "special") { controls(V); overview(V); }
  drawHead(V);
  if (active && find(V, '[data-set="' + active + '"]')) find(V, '[data-set="' + active + '"]').focus();
  tellAddress(V);
}
function drawHead(V) {
  drawMap(V);
  drawArcs(V);
  drawCard(V);
  find(V, ".foot").textContent = [V.data.rounding].concat(V.data.notes).join(" ");
}
/* A stack opens on its sharpest head; on full colour for all where some head needs it, from least to most where all
   are near even. */
function openStack(V) {
  var s = stackOf(V), st = V.state, sharpest = Infinity;
  st.layer = s.layers.length - 1;
  st.head = 0;
  s.layers.forEach(function (l, i) { l.heads.forEach(function (h, j) {
    var v = scoreAt(V, h, "spread");
    if (v != null && v < sharpest) { sharpest = v; st.layer = i; st.head = j; }
  }); });
  st.q = answering(V);
  st.k = -1;
  st.pinned = false;
  st.full = s.scale.peak >= 0.25 ? "all" : nearEven(V, s) ? "contrast" : "head";
  if (known(V).indexOf(st.measure) < 0) st.measure = "weight";
  if (st.show !== "maps" && !scoresKnown(V).some(function (f) { return f.name === st.show; })) st.show = "maps";
}
/* The row that is read first: a causal model answers after the last token; the first token sees itself alone. */
function answering(V) {
  var l = layerOf(V), map = mapOf(V, stackOf(V), l, V.state.head, "weight");
  return isCausal(V, stackOf(V), l, V.state.head) ? map.rows - 1 : 0;
}
/* Another text: a head or a scale of colours that was chosen stays where the new text has it too. */
function open(V, data) {
  var turn = (V.turn = (V.turn || 0) + 1), first = !V.data, st = V.state;
  V.ready = unpack(data.bytes).then(function (bytes) {
    if (turn !== V.turn) return V;
    if (V.data) forget(V.data);
    V.data = data;
    V.bytes = bytes;
    V.facts = V.options.score_facts || data.score_facts || [];
    var layer = st.layer, head = st.head, full = st.full;
    st.stack = Math.min(st.stack, data.stacks.length - 1);
    openStack(V);
    if (!first && V.picked && stackOf(V).layers[layer] && stackOf(V).layers[layer].heads[head]) { st.layer = layer; st.head = head; }
    if (V.coloured) st.full = full;
    if (first && (V.options.at || data.open)) goTo(V, V.options.at || data.open);
    else if (first && V.options.first) { goTo(V, V.options.first); V.picked = false; }
    if (first) applied(V, V.options.hash);
    controls(V);
    redraw(V);
    if (first && partsOf(V.options.hash).head) tellAddress(V); // which names what is there, whatever was asked for
    V.host.dataset.ready = "yes";
    return V;
  }).catch(function (error) { find(V, ".av").innerHTML = '<p class="note">The maps could not be unpacked (' + esc(error.message) + "). A browser of 2023 or later is needed.</p>"; throw error; });
}
/* What was computed for a text is not kept when another is shown. */
function forget(data) {
  data.stacks.forEach(function (s) { delete s.largest; s.layers.forEach(function (l) { l.heads.forEach(function (h) { delete h.kept; }); }); });
}
/* The head that was asked for: group, layer, head by their numbers. */
function goTo(V, where) {
  var stack = V.data.stacks[where[0]];
  if (!stack) return;
  stack.layers.forEach(function (l, i) { l.heads.forEach(function (h, j) {
    if (l.layer !== where[1] || h.head !== where[2]) return;
    V.state.stack = where[0];
    V.picked = true;
    openStack(V);
    V.state.layer = i;
    V.state.head = j;
  }); });
}
function redraw(V) {
  theme(V);
  overview(V);
  drawHead(V);
}
function mount(element, data, options) {
  var host = element.attachShadow ? element : null, V = { host: element, options: options || {}, state: { stack: 0, layer: 0, head: 0, show: "maps", measure: "weight", special: "shown", threshold: 0, cut: 0, full: "all", columns: "one", large: false, q: 0, k: -1 } };
  V.root = host.shadowRoot || host.attachShadow({ mode: "open" });
  host.textContent = ""; /* what stands there where no script runs */
  V.root.innerHTML = "<style>" + STYLES + "</style>" + FRAME;
  startOverview(V);
  if (innerWidth <= 760) find(V, ".cardbox").open = false;
  find(V, ".large").onclick = function () { enlarge(V, !V.state.large); overview(V); tellAddress(V); };
  find(V, ".cols").onclick = function () { inColumns(V, V.state.columns !== "two"); drawArcs(V); tellAddress(V); };
  var again = function () { if (V.bytes) redraw(V); };
  matchMedia("(prefers-color-scheme:dark)").addEventListener("change", again);
  matchMedia("print").addEventListener("change", again);
  new MutationObserver(again).observe(document.documentElement, { attributes: true, attributeFilter: ["data-theme"] });
  if (V.options.page) linkHeads(V);
  open(V, data);
  element.attnprobe = { follow: function (hash) { follow(V, hash); }, show: function (next) { open(V, next); return V.ready; }, redraw: again, state: V.state, weights: function (s, l, h) { return mapOf(V, V.data.stacks[s], V.data.stacks[s].layers[l], h, "weight"); },
    colours: function (numbers, measure, most) { return numbers.map(colourOf(V, measure, { low: 0, most: most })); } };
  return element.attnprobe;
}
/* In a frame of a notebook: the frame gets as high as the page, where the notebook lets it. */
function fit() {
  var grow = function () { try { window.frameElement.style.height = document.documentElement.offsetHeight + "px"; } catch (error) { /* another origin: the height that was given stays */ } };
  if (window.parent !== window && window.ResizeObserver) new ResizeObserver(grow).observe(document.body);
}
window.attnprobe_viewer = { mount: mount, fit: fit, headIn: headIn };
