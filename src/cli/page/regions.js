// SPDX-License-Identifier: Apache-2.0
// Signatures, and who holds which region of a tensor.
'use strict';

// --- signatures -----------------------------------------------------------------------------------
// "(S(0)/1,B)" -> [{kind: 'S', axis: 0}, {kind: 'B'}]
function parseSbp(text) {
  const words = text.startsWith('(') ? text.slice(1, -1).split(/,(?![^(]*\))/) : [text];
  return words.map(word => {
    const m = /^S\((\d+)\)(?:\/\d+)?$/.exec(word);
    if (m) return {kind: 'S', axis: +m[1]};
    if (word.startsWith('P')) return {kind: 'P', op: word === 'P' ? 'sum' : word.slice(2, -1)};
    return {kind: word === 'B' ? 'B' : '?'};
  });
}

const AXES = 6;
const sbpClass = s => s.kind === 'S' ? 's' + s.axis % AXES : s.kind === 'P' ? 'p' : 'b';

// Stripes, one for each dimension of the hierarchy.
function sbpColours(text) {
  const words = parseSbp(text);
  const stops = words.map((s, i) =>
    `var(--sbp-${sbpClass(s)}) ${(100 * i / words.length).toFixed(1)}% ${(100 * (i + 1) / words.length).toFixed(1)}%`);
  return `linear-gradient(to right, ${stops.join(', ')})`;
}

function chip(text) {
  return el('span', {class: 'chip'}, [
    el('span', {class: 'swatch', style: 'background:' + sbpColours(text), 'aria-hidden': 'true'}), text]);
}

// --- parts ----------------------------------------------------------------------------------------
// An axis of a tensor whose pieces ranks hold: {axis, at, of}, of the JSON's `pieces` and `splits`.
const piecesOf = (pieces, splits) => pieces.map(p => ({axis: p.axis, ...splits[p.split]}));

// Each rank's region, copy and addend: {rank, offset[], length[], copy, addend}.
function partsOf({shape, sbp, hierarchy, ranks, pieces}) {
  const words = parseSbp(sbp);
  return ranks.map((rank, index) => {
    const part = {rank, offset: shape.map(() => 0), length: shape.slice(), copy: 0, addend: 0};
    for (const {axis, at, of} of pieces) {
      part.offset[axis] = at[of[index]];
      part.length[axis] = at[of[index] + 1] - at[of[index]];
    }
    const place = [];
    for (let d = hierarchy.length - 1, left = index; d >= 0; d--) {
      place[d] = left % hierarchy[d];
      left = Math.floor(left / hierarchy[d]);
    }
    words.forEach((s, d) => {
      if (s.kind === 'P') part.addend = part.addend * hierarchy[d] + place[d];
      if (s.kind === 'B') part.copy = part.copy * hierarchy[d] + place[d];
    });
    return part;
  });
}

// Equal regions together: {offset, length, holders}; ranks without elements apart.
function cellsOf(parts) {
  const cells = new Map();
  const empty = [];
  for (const p of parts) {
    if (p.length.some(n => n === 0)) {
      empty.push(p.rank);
      continue;
    }
    const key = p.offset.join(',');
    if (!cells.has(key)) cells.set(key, {offset: p.offset, length: p.length, holders: []});
    cells.get(key).holders.push(p);
  }
  for (const c of cells.values()) c.holders.sort((a, b) => a.copy - b.copy || a.addend - b.addend);
  return {cells: [...cells.values()], empty};
}

// "0,1": copies; "0+1,2+3": two copies of a sum; "max(0,1)".
function holdersText(holders, partial) {
  const copies = new Map();
  for (const h of holders) {
    if (!copies.has(h.copy)) copies.set(h.copy, []);
    copies.get(h.copy).push(h.rank);
  }
  const groups = [...copies.values()];
  if (!partial || groups.every(g => g.length === 1)) return rangesText(groups.map(g => g[0]), 4);
  const words = groups.slice(0, 3).map(g => {
    const terms = g.length > 4 ? [g[0], g[1], '…', g[g.length - 1]] : g;
    return partial === 'sum' ? terms.join('+') : partial + '(' + terms.join(',') + ')';
  });
  return words.join(', ') + (groups.length > 3 ? ', …' : '');
}

// --- the drawing ----------------------------------------------------------------------------------
const rankColour = (rank, n) => `hsl(${Math.round(360 * rank / Math.max(n, 1))} var(--rank-s) var(--rank-l))`;

function cutsOf(cells, axis) {
  return [...new Set(cells.map(c => c.offset[axis]))].sort((a, b) => a - b);
}

// The axes that are drawn: [outer rows, outer columns, rows, columns]; -1: none.
function drawnAxes(shape, sbp) {
  const axes = [...new Set(parseSbp(sbp).filter(s => s.kind === 'S').map(s => s.axis))].sort((a, b) => a - b);
  for (let a = shape.length - 1; a >= 0 && axes.length < Math.min(2, shape.length); a--)
    if (!axes.includes(a)) axes.push(a);
  axes.sort((a, b) => a - b);
  while (axes.length < 4) axes.unshift(-1);
  return axes.slice(-4);
}

const MOST_CUTS = 32;

// Places along an axis: at most MOST_CUTS bins of neighbouring cuts, in proportion to their lengths.
function places(cells, axis, size, pixels, gap) {
  if (axis < 0) return [{first: 0, at: 0, width: pixels, from: 0, to: 1}];
  const cuts = cutsOf(cells, axis);
  const per = Math.ceil(cuts.length / MOST_CUTS);
  const out = [];
  for (let i = 0; i < cuts.length; i += per) {
    const to = i + per < cuts.length ? cuts[i + per] : size;
    out.push({cuts: new Set(cuts.slice(i, i + per)), from: cuts[i], to});
  }
  let at = 0;
  const room = pixels - gap * (out.length - 1);
  for (const p of out) {
    p.at = at;
    p.width = size > 0 ? room * (p.to - p.from) / size : room;
    at += p.width + gap;
  }
  return out;
}

const inPlace = (cell, axis, place) => axis < 0 || place.cuts.has(cell.offset[axis]);

// The picture of one end: {shape, sbp, hierarchy, ranks, pieces}. Returns an element.
function drawRegions(end, title) {
  const {shape, sbp, hierarchy, ranks} = end;
  if (!ranks.length || ranks.length > 8192)
    return el('p', {class: 'quiet'}, [title, ' ', chip(sbp), ' on too many ranks to draw']);
  const {cells, empty} = cellsOf(partsOf(end));
  const partial = (parseSbp(sbp).find(s => s.kind === 'P') || {}).op;
  const axes = drawnAxes(shape, sbp);
  const [outerRow, outerColumn, row, column] = axes;
  const most = Math.max(...ranks) + 1;
  const width = 260;
  const rows = row < 0 ? 1 : cutsOf(cells, row).length;
  const outerRows = outerRow < 0 ? 1 : Math.min(cutsOf(cells, outerRow).length, MOST_CUTS);
  const height = Math.min(260, Math.max(56, 26 * Math.min(rows, MOST_CUTS) * outerRows));
  const left = row < 0 && outerRow < 0 ? 4 : 54;
  const top = column < 0 ? 4 : 16;
  const drawing = svg('svg', {viewBox: `0 0 ${left + width + 4} ${top + height + 4}`, class: 'regions', role: 'img',
                              'aria-label': title + ': ' + cells.slice(0, 16).map(c => regionText(c) + ' on ' +
                                holdersText(c.holders, partial)).join('; ')});
  const heads = [];
  for (const R of places(cells, outerRow, shape[outerRow], height, 8))
    for (const C of places(cells, outerColumn, shape[outerColumn], width, 8))
      for (const r of places(cells, row, shape[row], R.width, 2))
        for (const c of places(cells, column, shape[column], C.width, 2)) {
          const mine = cells.filter(x => inPlace(x, outerRow, R) && inPlace(x, outerColumn, C) &&
                                         inPlace(x, row, r) && inPlace(x, column, c));
          if (!mine.length) continue;
          const x = left + C.at + c.at;
          const y = top + R.at + r.at;
          const holders = mine.flatMap(m => m.holders);
          const label = mine.length === 1 ? holdersText(holders, partial)
                                          : rangesText(holders.map(h => h.rank).sort((a, b) => a - b), 3);
          const rect = svg('rect', {x, y, width: Math.max(c.width, 0.5), height: Math.max(r.width, 0.5), rx: 2,
                                    fill: rankColour(holders[0].rank, most), class: partial ? 'partial' : null,
                                    'data-region': mine.length === 1 ? regionText(mine[0]) : null,
                                    'data-ranks': mine.length === 1 ? holders.map(h => h.rank).join(',') : null});
          rect.append(svg('title', {}, `${mine.length === 1 ? regionText(mine[0]) : plural(mine.length, 'part')}: rank` +
                                       `${holders.length > 1 ? 's' : ''} ${label}`));
          drawing.append(rect);
          if (label.length * 6.2 < c.width && r.width > 11)
            drawing.append(svg('text', {x: x + c.width / 2, y: y + r.width / 2, class: 'label'}, label));
          if (R.at + r.at === 0 && column >= 0) heads.push(['top', x, C.at + c.at, c.from, c.to, c.width]);
          if (C.at + c.at === 0 && row >= 0) heads.push(['left', y, 0, r.from, r.to, r.width]);
        }
  let lastTop = -100;
  let lastLeft = -100;
  for (const [side, at, , from, to, size] of heads) {
    const text = from + ':' + to;
    if (side === 'top' && at - lastTop > 8 + text.length * 5.5) {
      drawing.append(svg('text', {x: at + Math.min(size / 2, text.length * 3), y: 10, class: 'cut'}, text));
      lastTop = at;
    } else if (side === 'left' && at - lastLeft > 11) {
      drawing.append(svg('text', {x: left - 5, y: at + size / 2, class: 'cut end'}, text));
      lastLeft = at;
    }
  }
  const shown = axes.filter(a => a >= 0).map(a => 'axis ' + a);
  return el('figure', {class: 'holding'}, [
    el('figcaption', {}, [title, ' ', chip(sbp), ' ', shape.length ? '[' + shape.join(', ') + ']' : 'a scalar',
                          shape.length > 2 ? ' over ' + shown.join(', ') : '']),
    drawing,
    empty.length ? el('p', {class: 'quiet'}, 'nothing on rank' + (empty.length > 1 ? 's ' : ' ') + rangesText(empty, 8)) : null,
    partial ? el('p', {class: 'quiet'}, '+ joins addends of one value; a comma joins copies') : null]);
}

const regionText = c => '[' + c.offset.map((o, i) => o + ':' + (o + c.length[i])).join(', ') + ']';

// Who reads how much from whom: {ranks, bytes}.
function drawMatrix(move) {
  const n = move.ranks.length;
  const most = Math.max(1, ...move.bytes.flat());
  const cell = n <= 6 ? 52 : n <= 16 ? 20 : 260 / n;
  const left = 34;
  const total = move.bytes.flat().reduce((a, b) => a + b, 0);
  const drawing = svg('svg', {viewBox: `0 0 ${left + n * cell + 2} ${20 + n * cell + 2}`, class: 'matrix', role: 'img',
                              style: `max-width:${left + n * cell + 2}px`,
                              'aria-label': `bytes that each of ${n} ranks reads from each other, ${bytesText(total)} in all`});
  move.bytes.forEach((row, i) => row.forEach((bytes, j) => {
    const rect = svg('rect', {x: left + j * cell, y: 20 + i * cell, width: cell - 1, height: cell - 1, rx: 2,
                              class: bytes ? 'hot' : 'cold', 'fill-opacity': bytes ? 0.2 + 0.8 * bytes / most : null,
                              'data-reader': move.ranks[i], 'data-source': move.ranks[j], 'data-bytes': bytes});
    rect.append(svg('title', {}, `rank ${move.ranks[i]} reads ${bytesText(bytes)} from rank ${move.ranks[j]}`));
    drawing.append(rect);
    if (bytes && cell > 50)
      drawing.append(svg('text', {x: left + (j + 0.5) * cell, y: 20 + (i + 0.5) * cell, class: 'cell'}, bytesText(bytes)));
  }));
  const step = Math.max(1, Math.ceil(12 / cell));
  for (let i = 0; i < n; i += step) {
    drawing.append(svg('text', {x: left - 5, y: 20 + (i + 0.5) * cell, class: 'cut end'}, move.ranks[i]));
    drawing.append(svg('text', {x: left + (i + 0.5) * cell, y: 13, class: 'cut'}, move.ranks[i]));
  }
  return el('figure', {class: 'holding'}, [
    el('figcaption', {}, `rows read from columns; ${bytesText(total)} in this group, at most ${bytesText(most)} a pair`),
    drawing]);
}
