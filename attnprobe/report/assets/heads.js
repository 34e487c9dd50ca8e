/* Layers and heads of the chosen text; one head's map, its numbers, its arcs. */
var stackAt = 0, headAt = 0, layerAt = 0, showing = "maps", LABELLED = 40, ARCS = 0.12, ARC_TOKENS = 48;
/* The registered head scores: name -> label, unit ("share" or "number"), description. */
var FACTS = { maps: { label: "Maps" } };
D.head_scores.forEach(function (f) { FACTS[f.name] = f; });
function factValue(name, v) { return FACTS[name].unit === "share" ? pc(v) : v.toFixed(2); }
function stackNow() { return text().stacks[stackAt] || text().stacks[0]; }
function headNow() { return stackNow().layers[layerAt].heads[headAt]; }
/* Weights of a head, row by row: each byte times the head's step. */
function weights(layer, head) {
  if (!head.map) {
    var raw = atob(head.data), n = raw.length, map = new Float32Array(n);
    for (var i = 0; i < n; i++) map[i] = raw.charCodeAt(i) * head.step;
    head.map = map;
  }
  return head.map;
}
/* The two ends of a map's ramp in the present theme, and what lies between. */
function ramp() {
  var style = getComputedStyle(document.documentElement), ends = ["--map0", "--map1"].map(function (name) {
    var v = style.getPropertyValue(name).trim().replace("#", "");
    if (v.length === 3) v = v.replace(/./g, "$&$&");
    return [0, 2, 4].map(function (i) { return parseInt(v.substr(i, 2), 16); });
  });
  return function (w) {
    var c = Math.min(1, Math.sqrt(Math.max(0, w)));
    return ends[0].map(function (v, i) { return Math.round(v + (ends[1][i] - v) * c); });
  };
}
function paint(canvas, layer, head) {
  var map = weights(layer, head), pixels, between = ramp(), context = canvas.getContext("2d");
  canvas.width = layer.columns;
  canvas.height = layer.rows;
  pixels = context.createImageData(layer.columns, layer.rows);
  for (var i = 0; i < map.length; i++) {
    var c = between(map[i]);
    pixels.data[4 * i] = c[0];
    pixels.data[4 * i + 1] = c[1];
    pixels.data[4 * i + 2] = c[2];
    pixels.data[4 * i + 3] = 255;
  }
  context.putImageData(pixels, 0, 0);
}
function overview() {
  var s = stackNow(), most = 0, heads = Math.max.apply(0, s.layers.map(function (l) { return l.heads.length; }));
  s.layers.forEach(function (l) { l.heads.forEach(function (h) { if (showing !== "maps") most = Math.max(most, h.scores[showing] || 0); }); });
  var size = heads <= 2 ? "92px" : heads <= 4 ? "72px" : "1fr";
  var h = '<div class="mh">Layer (down) × head (across)</div><p class="note sm">' + esc(s.name + ". " + FACTS[showing].label) + (showing === "maps" ? ": each square is one head’s map" : "") + '</p><div class="ov" role="listbox" aria-label="Heads, ' +
    esc(FACTS[showing].label) + '" style="grid-template-columns:26px repeat(' + heads + ",minmax(0," + size + '))"><span></span>';
  for (var i = 0; i < heads; i++) h += '<span aria-hidden="true">' + i + "</span>";
  s.layers.forEach(function (l, li) {
    h += '<span aria-hidden="true" style="grid-column:1">' + l.layer + "</span>";
    l.heads.forEach(function (d, hi) {
      var on = li === layerAt && hi === headAt, v = showing === "maps" ? null : d.scores[showing];
      var fill = v == null ? "" : "background:color-mix(in oklab,var(--map0),var(--map1) " + (85 * v / (most || 1)).toFixed(1) + "%)";
      h += '<button type="button" role="option" tabindex="' + (on ? 0 : -1) + '" aria-selected="' + on + '" data-l="' + li + '" data-h="' + hi + '" style="' + fill + '" aria-label="Layer ' + l.layer + ", head " + hi +
        (v == null ? "" : ", " + FACTS[showing].label.toLowerCase() + " " + factValue(showing, v)) + '">' + (showing === "maps" ? "<canvas></canvas>" : "") + "</button>";
    });
  });
  h += '</div><p class="note sm" style="margin-top:10px;line-height:1.5">' + (showing === "maps" ? "Stronger: more weight." : "Faintest 0, strongest " + factValue(showing, most) + ". " + esc(FACTS[showing].description)) + "</p>";
  $("ov").innerHTML = h;
  if (showing === "maps") all("#ov button").forEach(function (b) { var l = s.layers[+b.dataset.l]; paint(b.firstChild, l, l.heads[+b.dataset.h]); });
}
function facts() {
  var s = stackNow(), l = s.layers[layerAt], d = headNow(), map = weights(l, d), t = text(), sums = [], h = "";
  for (var k = 0; k < l.columns; k++) { sums[k] = 0; for (var q = 0; q < l.rows; q++) sums[k] += map[q * l.columns + k] / l.rows; }
  var top = sums.map(function (v, i) { return [v, i]; }).sort(function (a, b) { return b[0] - a[0]; })[0];
  h += "<dt>Head</dt><dd>layer " + l.layer + ", head " + headAt + "</dd>";
  D.head_scores.forEach(function (f) {
    if (d.scores[f.name] != null) h += '<dt title="' + esc(f.description) + '">' + esc(f.label) + "</dt><dd>" + factValue(f.name, d.scores[f.name]) + "</dd>";
  });
  if (l.columns === s.keys) h += '<dd class="w">Most looked at: <b>' + tok(s.key_names[top[1]]) + "</b>, " + pc(top[0]) + " of the weight, mean over all rows.</dd>";
  $("hc").innerHTML = h;
  $("mapt").textContent = "Layer " + l.layer + ", head " + headAt;
  var pooled = l.columns !== s.keys || l.rows !== s.queries;
  $("maps").textContent = "Row: the token that looks. Column: the token looked at." + (pooled ? " Averaged over blocks, " + s.queries + " × " + s.keys + " tokens in " + l.rows + " × " + l.columns + " squares." : "");
  $("hnote").textContent = "Weights are stored here in 8 bits, off by at most " + pc(s.least_step / 2, 2) + " of a row; colour grows with the square root.";
  bigMap(s, l, d);
  arcs(s, l, d);
}
/* Names of the rows and columns of a map: tokens, or the blocks that they were averaged over. */
function side(names, n) {
  if (names.length === n) return names;
  return Array.from({ length: n }, function (_, i) { var a = Math.floor(i * names.length / n), b = Math.ceil((i + 1) * names.length / n) - 1; return names[a] + (b > a ? " … " + names[b] : ""); });
}
function bigMap(s, l, d) {
  var A = weights(l, d), rowsN = l.rows, cols = l.columns, Q = side(s.query_names, rowsN), K = side(s.key_names, cols);
  var labelled = rowsN <= LABELLED && cols <= LABELLED, at = [0, 0], box = $("map"), put, bounds;
  for (var k = 0; k < cols; k++) if (A[k] > A[at[1]]) at = [0, k];
  var tell = function (q, c) { $("mnow").innerHTML = "<b>" + tok(Q[q]) + "</b> looks at <b>" + tok(K[c]) + "</b> with " + pc(A[q * cols + c]) + " of its weight"; };
  var label = "Attention map, layer " + l.layer + ", head " + headAt + ": " + rowsN + " by " + cols + " weights. " + Q[0] + " looks most at " + K[at[1]] + ". Arrow keys read single weights.";
  if (labelled) {
    var longest = function (list) { return Math.min(110, 14 + Math.max.apply(0, list.map(function (w) { return ruler.measureText(w).width * 0.84; }))); };
    ruler.font = "450 14px " + getComputedStyle(document.body).fontFamily;
    var c = cols > 26 ? 12 : 15, LW = Math.ceil(longest(Q)), TH = Math.ceil(0.88 * longest(K)) + 6, tail = 34, W = LW + cols * c + tail, H = TH + rowsN * c, h = "";
    var clip = function (w) { return esc(w.length > 14 ? w.slice(0, 13) + "…" : w); };
    Q.forEach(function (w, q) { h += '<text x="' + (LW - 6) + '" y="' + (TH + q * c + c - 4) + '" text-anchor="end" data-q="' + q + '">' + clip(w) + "</text>"; });
    K.forEach(function (w, k) { h += '<text transform="translate(' + (LW + k * c + c - 4) + "," + (TH - 6) + ') rotate(-60)" data-k="' + k + '">' + clip(w) + "</text>"; });
    for (var q = 0; q < rowsN; q++) for (k = 0; k < cols; k++) if (A[q * cols + k] > 0.004) h += '<rect x="' + (LW + k * c) + '" y="' + (TH + q * c) + '" width="' + c + '" height="' + c + '" fill="var(--map1)" fill-opacity="' + Math.min(1, Math.sqrt(A[q * cols + k])).toFixed(2) + '"/>';
    box.innerHTML = '<svg viewBox="0 0 ' + W + " " + H + '" style="max-width:' + Math.round(1.3 * W) + 'px;width:100%" role="img" tabindex="0" aria-label="' + esc(label) + '"><rect x="' + LW + '" y="' + TH + '" width="' + cols * c + '" height="' + rowsN * c +
      '" fill="var(--map0)" stroke="var(--line)"/>' + h + '<rect id="cur" width="' + c + '" height="' + c + '" fill="none" stroke="var(--focus)" stroke-width="2.2"/></svg>';
    bounds = function (r) { return [(LW / W) * r.width, (TH / H) * r.height, (cols * c / W) * r.width, (rowsN * c / H) * r.height]; };
    put = function (q, k) {
      $("cur").setAttribute("x", LW + k * c);
      $("cur").setAttribute("y", TH + q * c);
      all("text", box).forEach(function (x) { var on = x.dataset.q == q || x.dataset.k == k; x.style.fill = on ? "var(--ink)" : ""; x.style.fontWeight = on ? 700 : ""; });
    };
  } else {
    box.innerHTML = '<div class="mapbig" tabindex="0" role="img" aria-label="' + esc(label) + '"><canvas></canvas><i></i></div>';
    paint(box.querySelector("canvas"), l, d);
    bounds = function (r) { return [0, 0, r.width, r.height]; };
    put = function (q, k) {
      var i = box.querySelector("i").style;
      i.left = 100 * k / cols + "%"; i.top = 100 * q / rowsN + "%"; i.width = 100 / cols + "%"; i.height = 100 / rowsN + "%";
    };
  }
  var move = function (q, k) { if (q < 0 || k < 0 || q >= rowsN || k >= cols) return; at = [q, k]; put(q, k); tell(q, k); };
  move(at[0], at[1]);
  var target = box.firstChild;
  target.onmousemove = function (e) {
    var r = target.getBoundingClientRect(), b = bounds(r);
    move(Math.floor((e.clientY - r.top - b[1]) / b[3] * rowsN), Math.floor((e.clientX - r.left - b[0]) / b[2] * cols));
  };
  target.onkeydown = function (e) {
    var step = { ArrowRight: [0, 1], ArrowLeft: [0, -1], ArrowDown: [1, 0], ArrowUp: [-1, 0] }[e.key];
    if (step) { e.preventDefault(); move(at[0] + step[0], at[1] + step[1]); }
  };
}
function arcs(s, l, d) {
  var n = l.rows, A = weights(l, d), fits = s.kind === "self" && n === l.columns && n === s.keys && n <= ARC_TOKENS;
  $("arcbox").hidden = !fits;
  if (!fits) return;
  var c = 19, W = 214, H = n * c + 6, x = 107, count = 0, h = "", T = s.key_names;
  for (var q = 0; q < n; q++) for (var k = 0; k < n; k++) {
    var v = A[q * n + k];
    if (q === k || v < ARCS) continue;
    count++;
    var y1 = q * c + 12, y2 = k * c + 12, way = k > q ? 1 : -1, x0 = x + way * 42, xc = x0 + way * Math.min(8 + Math.abs(q - k) * 3.1, 62) * 1.25;
    h += '<path data-a="' + q + '" data-b="' + k + '" d="M' + x0 + " " + y1 + "C" + xc + " " + y1 + " " + xc + " " + y2 + " " + x0 + " " + y2 + '" fill="none" stroke="var(--accent)" stroke-opacity="' + Math.min(0.9, 0.15 + v).toFixed(2) + '" stroke-width="' + (0.5 + 4 * v).toFixed(1) + '"/>';
  }
  T.forEach(function (w, i) { h += '<text x="' + x + '" y="' + (i * c + 16) + '" text-anchor="middle" style="fill:var(--ink);font-size:12.5px" data-q="' + i + '">' + esc(w.length > 12 ? w.slice(0, 11) + "…" : w) + "</text>"; });
  $("arct").textContent = count ? "Arcs, weight above " + ARCS : "No weight above " + ARCS;
  $("arc").innerHTML = '<svg viewBox="0 0 ' + W + " " + H + '" role="img" aria-label="Arcs of layer ' + l.layer + ", head " + headAt + ": " + count + " weights above " + ARCS + '">' + h + "</svg>";
  var svg = $("arc").firstChild, fade = function (i) { all("path", svg).forEach(function (p) { p.style.opacity = i == null || p.dataset.a === i || p.dataset.b === i ? 1 : 0.08; }); };
  svg.onmouseover = function (e) { var t = e.target.closest("text"); fade(t ? t.dataset.q : null); };
  svg.onmouseleave = function () { fade(null); };
}
/* The heading is the finding: which heads look at the fewest and at the most tokens. */
function headsTitle() {
  var t = text(), found = [];
  t.stacks.forEach(function (s) { s.layers.forEach(function (l) { l.heads.forEach(function (h, i) { found.push([h.scores.spread, l.layer, i, s.name]); }); }); });
  found.sort(function (a, b) { return a[0] - b[0]; });
  if (!found.length) { $("h-heads").textContent = "The attention maps are not on this page"; return; }
  var name = function (f) { return (t.stacks.length > 1 ? f[3].toLowerCase().replace(", ", " ") + ", l" : "l") + "ayer " + f[1] + ", head " + f[2]; }, a = found[0], b = found[found.length - 1];
  $("h-heads").textContent = found.length === 1 ? "The only head has a spread of " + a[0].toFixed(2) + " here" :
    b[0] - a[0] < 0.05 ? "All " + found.length + " heads spread their weight alike here, from " + a[0].toFixed(2) + " to " + b[0].toFixed(2) :
    "The sharpest head here is " + name(a) + "; the most even is " + name(b);
}
function drawHeads() {
  var t = text();
  headsTitle();
  $("headsbox").hidden = !t.stacks.length;
  $("hdek").textContent = t.no_maps || "Spread 0: each token looks at one token; 1: at all alike. Layers and heads are numbered from 0, as in the code. A map shows where a head reads; it does not show what the answer depends on.";
  if (!t.stacks.length) return;
  stackAt = Math.min(stackAt, t.stacks.length - 1);
  layerAt = Math.min(layerAt, stackNow().layers.length - 1);
  headAt = Math.min(headAt, stackNow().layers[layerAt].heads.length - 1);
  var some = stackNow().layers[0].heads[0].scores, keys = Object.keys(FACTS).filter(function (k) { return k === "maps" || some[k] != null; });
  if (keys.indexOf(showing) < 0) showing = "maps";
  var button = function (attribute, value, label, on) { return '<button type="button" ' + attribute + '="' + value + '" aria-pressed="' + on + '">' + esc(label) + "</button>"; };
  $("stackbox").innerHTML = t.stacks.length < 2 ? "" : '<span id="lst">Stack</span><span class="seg" role="group" aria-labelledby="lst">' + t.stacks.map(function (s, i) { return button("data-stack", i, s.name, i === stackAt); }).join("") + "</span>";
  $("hshow").innerHTML = keys.map(function (k) { return button("data-show", k, FACTS[k].label, k === showing); }).join("");
  all("[data-stack]").forEach(function (b) { b.onclick = function () { stackAt = +b.dataset.stack; start(stackNow()); drawHeads(); }; });
  all("[data-show]").forEach(function (b) { b.onclick = function () { showing = b.dataset.show; press(b, "data-show"); overview(); }; });
  overview();
  facts();
}
/* A stack opens on its sharpest head of the last layer. */
function start(s) {
  layerAt = s.layers.length - 1;
  headAt = 0;
  s.layers[layerAt].heads.forEach(function (h, i) { if (h.scores.spread < s.layers[layerAt].heads[headAt].scores.spread) headAt = i; });
}
function startHeads() {
  var pick = function (l, h) {
    var s = stackNow();
    if (!s.layers[l] || !s.layers[l].heads[h]) return;
    layerAt = l;
    headAt = h;
    overview();
    facts();
    $("ov").querySelector("[aria-selected=true]").focus();
  };
  if (text().stacks.length) start(stackNow());
  $("ov").addEventListener("click", function (e) { var b = e.target.closest("[data-h]"); if (b) pick(+b.dataset.l, +b.dataset.h); });
  $("ov").addEventListener("keydown", function (e) {
    var step = { ArrowRight: [0, 1], ArrowLeft: [0, -1], ArrowDown: [1, 0], ArrowUp: [-1, 0] }[e.key];
    if (step) { e.preventDefault(); pick(layerAt + step[0], headAt + step[1]); }
  });
  $("ov").addEventListener("mouseover", function (e) { var b = e.target.closest("[data-h]"); if (b) showTip(b, esc(b.getAttribute("aria-label"))); });
  $("ov").addEventListener("mouseout", hideTip);
  listeners.push(drawHeads);
}
