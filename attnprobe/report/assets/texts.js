/* The strip under the claim, the rows of tokens, the table of exact values. */
var FULL = 0.6, scale = "common", ruler = document.createElement("canvas").getContext("2d");
function firstOf(t, wanted, signed) {
  var known = methodsOf(t).filter(function (m) { return t.methods[m].signed == signed && !INFO[m].control; });
  return wanted.filter(function (m) { return known.indexOf(m) >= 0; })[0] || known[0];
}
function strip() {
  var t = text(), up = firstOf(t, ["raw_attention", "rollout"], 0);
  var down = firstOf(t, ["leave_one_out", "shapley_sampling", "occlusion", "integrated_gradients"], 1);
  var a = up ? shares(t, up) : null, r = down ? shares(t, down) : null, most = 0.01;
  [a, r].forEach(function (row) { (row || []).forEach(function (v) { most = Math.max(most, Math.abs(v)); }); });
  var k = Math.min((t.tokens.length > 40 ? 32 : 54) / most, up ? 26 / Math.max.apply(0, a) * 2.2 : 1e9), h = "";
  var px = function (v) { return v === 0 ? 0 : Math.max(1, Math.round(k * Math.abs(v))); };
  var tall = up ? Math.max(12, px(Math.max.apply(0, a))) : 0, deep = down ? Math.max.apply(0, r.map(px)) + 3 : 0;
  t.tokens.forEach(function (w, i) {
    h += '<span class="k">' + (up ? '<span class="a" style="height:' + tall + 'px"><i style="height:' + px(a[i]) + 'px"></i></span>' : "") +
      '<span class="w' + (t.special[i] ? " sp" : "") + '">' + tok(w) + "</span>" +
      (down ? '<span class="r" style="height:' + deep + 'px"><i style="height:' + px(r[i]) + "px;background:var(--" + (r[i] < 0 ? "neg" : "pos") + ')"></i></span>' : "") + "</span>";
  });
  var top = function (row, m) {
    return row.map(function (v, i) { return [Math.abs(v), i]; }).sort(function (x, y) { return y[0] - x[0]; }).slice(0, 3)
      .map(function (x) { return t.tokens[x[1]] + " " + (t.methods[m].signed ? sgn(100 * row[x[1]], 0) : fix(100 * row[x[1]], 0)) + NB + "%"; }).join(", ");
  };
  var label = (up ? INFO[up].label + " above each token: " + top(a, up) + ". " : "") + (down ? INFO[down].label + " below: " + top(r, down) + "." : "");
  var name = function (m) { return INFO[m].inline; };
  $("strip").innerHTML = '<div class="ln" role="img" aria-label="' + esc(label) + '">' + h + "</div><figcaption>" +
    (up ? '<span style="--k:var(--bandline)">above: ' + name(up) + ", no direction</span>" : "") +
    (down ? '<span style="--k:var(--pos)">below: argues for ' + esc(t.answer) + " (" + name(down) + ')</span><span style="--k:var(--neg)">below: argues against</span>' : "") +
    (up && down ? '<b style="font-weight:400">same scale, % of the row’s total size</b>' : "") + "</figcaption>";
  var cells = all(".k", $("strip"));
  if (cells.length && cells[0].offsetTop !== cells[cells.length - 1].offsetTop) $("strip").firstChild.insertAdjacentHTML("beforeend", '<span style="flex:1000 1 0"></span>');
}
/* Cells are as wide as their token; what does not fit on a line wraps into a block with its labels repeated. */
function blocks(t, avail, small) {
  var measure = function (least, pad) {
    return t.tokens.map(function (w) { return Math.max(least, Math.ceil(ruler.measureText(w).width) + pad) + 2; });
  };
  var sum = function (a) { return a.reduce(function (x, y) { return x + y; }, 0); };
  var ws = measure(38, 14), tight = small || sum(ws) > avail;
  if (tight) ws = measure(31, small ? 6 : 8);
  var wrap = function (limit) {
    var lines = [], line = [], s = 0;
    ws.forEach(function (w, i) {
      if (line.length && s + w > limit) { lines.push(line); line = []; s = 0; }
      line.push(i);
      s += w;
    });
    lines.push(line);
    return lines;
  };
  var lines = wrap(avail), limit = avail;
  if (lines.length > 1) while (limit > 80 && wrap(limit - 6).length === lines.length) limit -= 6;
  return { lines: wrap(limit), tight: tight };
}
function rows() {
  var t = text(), box = $("rows"), small = phone(), ms = methodsOf(t), n = t.tokens.length, h = "";
  ruler.font = "450 " + (small ? 13 : 14) + "px " + getComputedStyle(document.body).fontFamily;
  var b = blocks(t, box.clientWidth - (small ? 92 : 158), small);
  var gaps = t.spread.map(function (s, i) {
    return s == null ? 0 : s * Math.max.apply(0, ms.map(function (m) { return INFO[m].control ? 0 : Math.abs(shares(t, m)[i]); }));
  });
  var most = Math.max.apply(0, gaps) || 1, floor = gaps.slice().sort(function (x, y) { return y - x; })[Math.min(2, n - 1)];
  var several = ms.filter(function (m) { return !INFO[m].control; }).length > 1;
  b.lines.forEach(function (line) {
    h += "<table" + (b.tight ? ' class="tight"' : "") + (b.lines.length === 1 ? ' style="width:calc(100% + 4px)"' : "") +
      ' role="grid" aria-label="Text under each method, tokens ' + (line[0] + 1) + " to " + (line[line.length - 1] + 1) + '"><tbody>';
    if (several) h += disagreement(t, line, gaps, most, floor);
    var family = "";
    ms.forEach(function (m) {
      h += row(t, m, line, small, family && INFO[m].family !== family);
      family = INFO[m].family;
    });
    h += "</tbody></table>";
  });
  box.innerHTML = h;
  var first = box.querySelector(".c");
  if (first) first.tabIndex = 0;
  $("now").textContent = "";
}
function disagreement(t, line, gaps, most, floor) {
  var h = '<tr><th scope="row"><b style="font-weight:600">Disagreement</b><small style="padding:0">ranks apart × share</small></th>';
  line.forEach(function (i) {
    var s = t.spread[i], strong = s > 0 && gaps[i] >= floor;
    h += s == null ? '<td class="d"></td>' : '<td class="d' + (strong ? " top" : "") + '" title="' + esc(t.tokens[i]) + ": ranks up to " + s + " of " + t.n_units + " places apart, times the largest share of the token: " + fix(gaps[i], 1) + '">' +
      (gaps[i] < 0.05 ? "0" : fix(gaps[i], 1)) + '<i style="height:' + (2 + 26 * gaps[i] / most).toFixed(0) + 'px"></i></td>';
  });
  return h + "</tr>";
}
function row(t, m, line, small, gap) {
  var sh = shares(t, m), signed = t.methods[m].signed;
  var most = scale === "row" ? Math.max.apply(0, sh.map(Math.abs)) || 1 : FULL;
  var h = "<tr" + (gap ? ' class="gp"' : "") + '><th scope="row"><span class="gl">' + glyph(m) + "</span>" + esc(small ? INFO[m].short : INFO[m].label) +
    "<small>" + esc(INFO[m].sub) + "</small></th>";
  line.forEach(function (i) {
    var v = sh[i], c = Math.min(1, Math.sqrt(Math.abs(v) / most)), r = Math.round(100 * Math.abs(v)), against = signed && v < 0;
    h += '<td class="c ' + (signed ? "s" : "u") + (against ? " m" : "") + (t.special[i] ? " sp" : "") + '" style="--v:' + c.toFixed(3) +
      '" tabindex="-1" data-m="' + M.indexOf(m) + '" data-i="' + i + '"><span class="t">' + tok(t.tokens[i]) + '</span><span class="n">' +
      (r === 0 ? "0" : (signed ? (against ? MINUS : "+") : "") + r) + "</span></td>";
  });
  return h + "</tr>";
}
function note(m, i) {
  var t = text(), s = t.methods[m], v = s.scores[i], rank = s.ranks[i], e = s.error && s.error[i];
  var value = s.signed ? sgn(v, 3) + (e ? " ± " + e.toFixed(3) : "") + (/control|attention/.test(INFO[m].family) ? "" : " " + t.unit) : v.toFixed(3);
  var way = !s.signed ? "no direction" : Math.abs(v) < 0.0005 ? "no effect" : (v < 0 ? "against " : "for ") + esc(t.answer);
  var place = rank == null ? "special token, not ranked" : "rank " + String(rank).replace(".5", "½") + " of " + t.n_units;
  return "<b>" + tok(t.tokens[i]) + "</b>" + (t.exact[i] ? ' <span class="mono">(' + tok(t.exact[i]) + ")</span>" : "") + " under " + esc(INFO[m].inline) +
    '<br><span class="mono">' + value + "</span><br>" + pc(Math.abs(shares(t, m)[i])) + " of the row, " + way + "<br>" + place;
}
function legend() {
  if (scale === "row") {
    $("leg").innerHTML = "<div>Each row is coloured up to its own largest value. Colours can be compared within a row only; the numbers can be compared everywhere.</div>";
    return;
  }
  var cell = function (v, kind) {
    return '<span class="c ' + kind + (v < 0 ? " m" : "") + '" style="min-width:0;padding:0;--v:' + Math.sqrt(Math.abs(v) / FULL).toFixed(3) + '"></span>';
  };
  var steps = [-0.6, -0.2, -0.05, 0, 0.05, 0.2, 0.6], weights = [0, 0.05, 0.2, 0.6], t = text();
  var ticks = function (list, signed) {
    return '<div class="tick">' + list.map(function (v) { return "<span>" + (signed ? (v === 0 ? "0" : sgn(100 * v, 0)) : fix(100 * v, 0)) + "</span>"; }).join("") + "</div>";
  };
  $("leg").innerHTML = '<div><div>Signed: against <span aria-hidden="true">←</span> 0 <span aria-hidden="true">→</span> for ' + esc(t.answer) + '</div><div class="ramp">' +
    steps.map(function (v) { return cell(v, "s"); }).join("") + "</div>" + ticks(steps, true) + '</div><div><div>No sign: weight</div><div class="ramp">' +
    weights.map(function (v) { return cell(v, "u"); }).join("") + "</div>" + ticks(weights, false) +
    '</div><div style="max-width:33em">% of the row’s total size. Colour grows with the square root, so small values stay visible. Top row: how many ranks the methods lie apart on a token, times its largest share under any of them. Solid: the three highest.</div>';
}
function values() {
  var t = text(), ms = methodsOf(t), h = "<thead><tr><th scope=\"col\">Token</th>";
  ms.forEach(function (m) { h += '<th scope="col" class="r">' + esc(INFO[m].label) + "</th>"; });
  h += "</tr></thead><tbody>";
  t.tokens.forEach(function (w, i) {
    h += '<tr><th scope="row">' + tok(w) + "</th>" + ms.map(function (m) {
      var v = t.methods[m].scores[i];
      return '<td class="r">' + (t.methods[m].signed ? sgn(v, 4) : fix(v, 4)) + "</td>";
    }).join("") + "</tr>";
  });
  $("vals").innerHTML = h + "</tbody>";
  $("valsof").innerHTML = (D.texts.length > 1 ? "Text " + (now + 1) + ": <bdi>" + esc(t.title) + "</bdi>. " : "") + "Scores as each method gives them, in a unit of its own: its formula is under Methods.";
}
function startTexts() {
  var box = $("rows");
  var cellOf = function (e) { return e.target.closest ? e.target.closest(".c") : null; };
  var column = function (i, on) { all('.c[data-i="' + i + '"]', box).forEach(function (c) { c.classList.toggle("col", on); }); };
  box.addEventListener("mouseover", function (e) { var c = cellOf(e); if (c) { showTip(c, note(M[+c.dataset.m], +c.dataset.i), 1); column(c.dataset.i, true); } });
  box.addEventListener("mouseout", function (e) { var c = cellOf(e); if (c) { hideTip(); column(c.dataset.i, false); } });
  box.addEventListener("focusin", function (e) {
    var c = cellOf(e);
    if (!c) return;
    all('.c[tabindex="0"]', box).forEach(function (x) { x.tabIndex = -1; });
    c.tabIndex = 0;
    showTip(c, note(M[+c.dataset.m], +c.dataset.i), 1);
    $("now").innerHTML = note(M[+c.dataset.m], +c.dataset.i).replace(/<br>/g, ", ");
  });
  box.addEventListener("focusout", hideTip);
  box.addEventListener("keydown", function (e) {
    var c = cellOf(e), ms = methodsOf(text());
    if (!c) return;
    if (e.key === "Escape") { hideTip(); return; }
    var i = +c.dataset.i, at = ms.indexOf(M[+c.dataset.m]);
    if (e.key === "ArrowRight") i++;
    else if (e.key === "ArrowLeft") i--;
    else if (e.key === "ArrowDown") at++;
    else if (e.key === "ArrowUp") at--;
    else if (e.key === "Home") i = 0;
    else if (e.key === "End") i = text().tokens.length - 1;
    else return;
    var next = box.querySelector('.c[data-m="' + M.indexOf(ms[at]) + '"][data-i="' + i + '"]');
    if (next) { e.preventDefault(); next.focus(); }
  });
  all("[data-scale]").forEach(function (b) { b.onclick = function () { scale = b.dataset.scale; press(b, "data-scale"); rows(); legend(); }; });
  listeners.push(function () { strip(); rows(); legend(); values(); $("h-text").textContent = text().heading; });
}
