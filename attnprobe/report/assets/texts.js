/* The rows of tokens, their legend, the table of exact values. */
var FULL = 0.6, scale = "common", ruler = document.createElement("canvas").getContext("2d");
/* Cells are as wide as their token; what does not fit on a line wraps into a block with its labels repeated. */
function blocks(t, avail, small, part) {
  var measure = function (least, pad) {
    return t.tokens.map(function (w) { return Math.max(least, Math.ceil(ruler.measureText(w).width) + pad) + 2; });
  };
  var sum = function (a) { return a.reduce(function (x, y) { return x + y; }, 0); };
  var ws = measure(38, 14), tight = small || part || sum(ws) > avail;
  if (tight) ws = measure(31, small ? 6 : 8);
  var wrap = function (limit) {
    var lines = [], line = [], s = 0;
    ws.forEach(function (w, i) {
      if (part && (i < part[0] || i > part[1])) return;
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
/* All methods where they fit, else those that are chosen. */
var MANY = 14;
function rowMethods(t) { return M.length > MANY ? methodsOf(t).filter(function (m) { return shownMethods().indexOf(m) >= 0; }) : methodsOf(t); }
/* A long text in bands, of whole sentences where there are such: first the share of each, then one of them word by word. */
var LONG = 128, BAND = [24, 64], band = 0, bandOf = null;
function bands(t) {
  var found = [], from = 0;
  t.tokens.forEach(function (w, i) {
    var size = i + 1 - from, ends = /^[.!?…。！？]$/.test(w.replace(/[␣⏎]/g, ""));
    if ((ends && size >= BAND[0]) || size >= BAND[1] || i === t.tokens.length - 1) { found.push([from, i]); from = i + 1; }
  });
  return found;
}
/* The part that holds a token: at first the one on which the methods part most. */
function bandWith(list, i) {
  return Math.max(0, list.findIndex(function (b) { return b[0] <= i && i <= b[1]; }));
}
function bandTable(t, ms, list, small) {
  var h = '<div class="scroll bands"><table aria-label="Share of each part of the text under each method"><thead><tr><th scope="col">Tokens</th>' + list.map(function (b, k) {
    return '<th scope="col"><button type="button" data-band="' + k + '" aria-pressed="' + (k === band) + '" title="' + esc(t.tokens.slice(b[0], b[0] + 6).join(" ")) + ' …">' + (b[0] + 1) + "–" + (b[1] + 1) + "</button></th>";
  }).join("") + "</tr></thead><tbody>";
  ms.forEach(function (m) {
    var sh = shares(t, m), signed = t.methods[m].signed;
    h += '<tr><th scope="row"><span class="gl">' + glyph(m) + "</span>" + esc(small ? INFO[m].short : INFO[m].label) + "</th>" + list.map(function (b, k) {
      var v = sh.slice(b[0], b[1] + 1).reduce(function (x, y) { return x + y; }, 0), c = Math.min(1, Math.sqrt(Math.abs(v) / FULL)), r = Math.round(100 * Math.abs(v));
      return '<td class="b ' + (signed ? "s" : "u") + (signed && v < 0 ? " m" : "") + (k === band ? " on" : "") + '" style="--v:' + c.toFixed(3) + '">' + (r === 0 ? "0" : (signed ? (v < 0 ? MINUS : "+") : "") + r) + "</td>";
    }).join("") + "</tr>";
  });
  return h + '</tbody></table></div><p class="note sm">Shares of whole parts, for minus against where there is a direction. Choose a part to read it word by word; all exact values are in the table below.</p>';
}
function rows() {
  var t = text(), box = $("rows"), small = phone(), ms = rowMethods(t), n = t.tokens.length, h = "";
  ruler.font = "450 " + (small ? 13 : 14) + "px " + getComputedStyle(document.body).fontFamily;
  var room = printing ? Math.min(PAPER - 46, box.clientWidth) : box.clientWidth;
  var gaps = t.spread.map(function (s, i) {
    return s == null ? 0 : s * Math.max.apply(0, ms.map(function (m) { return INFO[m].control ? 0 : Math.abs(shares(t, m)[i]); }));
  });
  var most = Math.max.apply(0, gaps) || 1, floor = gaps.slice().sort(function (x, y) { return y - x; })[Math.min(2, n - 1)];
  var list = n > LONG ? bands(t) : [];
  if (bandOf !== t) { bandOf = t; band = bandWith(list, gaps.indexOf(Math.max.apply(0, gaps))); }
  var chosen = list[band], b = blocks(t, room - (small ? 92 : 158), small, chosen);
  var several = ms.filter(function (m) { return !INFO[m].control; }).length > 1;
  if (chosen) h += bandTable(t, ms, list, small);
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
    h += s == null ? '<td class="d"></td>' : '<td class="d' + (strong ? " top" : "") + '" title="' + esc(t.tokens[i]) + ": ranks " + (t.by_size ? "by size " : "") + "up to " + s + " of " + t.n_units + " places apart, times the largest share of the token: " + fix(gaps[i], 1) + '">' +
      (gaps[i] < 0.05 ? "0" : fix(gaps[i], 1)) + '<i style="height:' + (2 + 26 * gaps[i] / most).toFixed(0) + 'px"></i></td>';
  });
  return h + "</tr>";
}
function row(t, m, line, small, gap) {
  var sh = shares(t, m), signed = t.methods[m].signed;
  var most = scale === "row" ? Math.max.apply(0, sh.map(Math.abs)) || 1 : FULL;
  /* Where no token has a tenth of the row, whole percents would all be 0 or 1. */
  var digits = Math.max.apply(0, sh.map(Math.abs)) < 0.1 ? 1 : 0;
  var h = "<tr" + (gap ? ' class="gp"' : "") + '><th scope="row"><span class="gl">' + glyph(m) + "</span>" + esc(small ? INFO[m].short : INFO[m].label) +
    "<small>" + esc(INFO[m].sub) + "</small></th>";
  line.forEach(function (i) {
    var v = sh[i], c = Math.min(1, Math.sqrt(Math.abs(v) / most)), r = fix(100 * Math.abs(v), digits), against = signed && v < 0;
    h += '<td class="c ' + (signed ? "s" : "u") + (against ? " m" : "") + (t.special[i] ? " sp" : "") + '" style="--v:' + c.toFixed(3) +
      '" tabindex="-1" data-m="' + M.indexOf(m) + '" data-i="' + i + '"><span class="t">' + tok(t.tokens[i]) + '</span><span class="n">' +
      (+r === 0 ? "0" : (signed ? (against ? MINUS : "+") : "") + r) + "</span></td>";
  });
  return h + "</tr>";
}
function note(m, i) {
  var t = text(), s = t.methods[m], v = s.scores[i], rank = s.ranks[i], e = s.error && s.error[i];
  var value = s.signed ? sgn(v, 3) + (e ? " ± " + e.toFixed(3) : "") + (/control|attention/.test(INFO[m].family) ? "" : " " + t.unit) : v.toFixed(3);
  var way = !s.signed ? "no direction" : Math.abs(v) < 0.0005 ? "no effect" : (v < 0 ? "against " : "for ") + esc(t.answer);
  var place = rank == null ? "special token, not ranked" : "rank " + String(rank).replace(".5", "½") + " of " + t.n_units + (t.by_size && s.signed && s.sizes[i] !== rank ? ", " + String(s.sizes[i]).replace(".5", "½") + " by size" : "");
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
    '</div><div style="max-width:33em">% of the row’s total size. Colour grows with the square root, so small values stay visible. Top row: how many ranks' + (t.by_size ? ", by the size of the score," : "") + ' the methods lie apart on a token, times its largest share under any of them. Solid: the three highest.</div>';
}
function values() {
  var t = text(), ms = methodsOf(t), h = "<thead><tr><th scope=\"col\">" + capital(NOUN.token) + "</th>";
  ms.forEach(function (m) { h += '<th scope="col" class="r">' + esc(INFO[m].label) + "</th>"; });
  h += "</tr></thead><tbody>";
  t.tokens.forEach(function (w, i) {
    h += '<tr><th scope="row">' + tok(w) + "</th>" + ms.map(function (m) {
      var v = t.methods[m].scores[i];
      return '<td class="r">' + (t.methods[m].signed ? sgn(v, 4) : fix(v, 4)) + "</td>";
    }).join("") + "</tr>";
  });
  $("vals").innerHTML = h + "</tbody>";
  $("valsof").innerHTML = (D.texts.length > 1 ? capital(NOUN.text) + " " + (now + 1) + ": <bdi>" + esc(t.title) + "</bdi>. " : "") + "Scores as each method gives them, in a unit of its own: its formula is under Methods.";
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
    var c = cellOf(e), ms = rowMethods(text());
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
  box.addEventListener("click", function (e) {
    var b = e.target.closest("[data-band]");
    if (!b) return;
    band = +b.dataset.band;
    rows();
    box.querySelector('[data-band="' + band + '"]').focus();
  });
  switches("data-scale", function (value) { scale = value; rows(); legend(); });
  if (M.length > MANY) setListeners.push(rows);
  listeners.push(function () {
    strip(); rows(); legend(); values();
    $("h-text").textContent = $("toc-text").textContent = text().heading;
  });
}
