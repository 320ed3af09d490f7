// SPDX-License-Identifier: Apache-2.0
// The program as nested modules, in lanes by placement, with conversions as edges. Every row that is
// shown is laid out once, and every conversion is looked at once.
'use strict';

const ROW = 26;
const PAD = 5;
const FIRST_ROWS = 34;

// --- what stands for what -------------------------------------------------------------------------
// Folded copies of a module are stood for by the first: node.rep and op.rep.
function findReps(m) {
  const pair = (node, rep) => {
    node.rep = rep;
    node.ops.forEach((op, i) => { op.rep = rep.ops[i] || op; });
    node.children.forEach((child, i) => {
      const other = rep.children[i] || child;
      pair(child, node === rep ? child.stands.rep || child.stands : other.rep || other);
    });
  };
  pair(m.root, m.root);
}

function lastForward(node) {
  let last = null;
  const walk = n => {
    for (const op of n.ops) if (op.phase === 'forward' && op.out.length && (!last || op.id > last.id)) last = op;
    n.children.forEach(walk);
  };
  walk(node);
  return last;
}

// --- rows -----------------------------------------------------------------------------------------
function itemsOf(node) {
  const items = node.folded.map(child => ({child, at: child.first}));
  for (const op of node.ops)
    if (op.phase === 'forward' || op.phase === 'source') items.push({op, at: op.phase === 'source' ? -1 : op.id});
  items.sort((a, b) => a.at - b.at);
  return items;
}

// Backward runs up, beside the forward ops; updates, the last of a step, come on top.
const backwardOf = node => node.ops.filter(o => o.phase === 'backward' || o.phase === 'update').sort((a, b) => b.id - a.id);

// Each op beside one of its backward, which is known by name and line; what is left fills the gaps.
function rowsInside(node) {
  const key = op => op.name + ':' + (op.line || '');
  const waiting = new Map();
  for (const op of backwardOf(node)) {
    const k = op.phase === 'backward' ? key(op) : '';
    if (!waiting.has(k)) waiting.set(k, []);
    waiting.get(k).push(op);
  }
  const rows = itemsOf(node).map(x => {
    if (x.child) return {node: x.child};
    const own = x.op.phase === 'forward' ? waiting.get(key(x.op)) : null;
    return {node, forward: x.op, backward: own ? own.shift() : undefined};
  });
  const left = [...waiting.values()].flat().sort((a, b) => b.id - a.id);
  for (const row of rows) if (row.forward && !row.backward) row.backward = left.shift();
  for (const op of left) rows.push({node, backward: op});
  return rows;
}

function expandFirst(m) {
  m.root.expanded = true;
  let shown = rowsInside(m.root).length;
  for (let queue = m.root.folded.slice(); queue.length;) {
    const node = queue.shift();
    const more = rowsInside(node).length;
    if (!node.children.length || shown + more > FIRST_ROWS) continue;
    node.expanded = true;
    shown += more;
    queue.push(...node.folded);
  }
}

// Places every row that is shown: {node, forward, backward, depth, y, h}. Sets node.row and op.row.
function layOut(m) {
  const rows = [];
  let y = 0;
  const hide = (node, row) => {
    node.row = row;
    node.children.forEach(c => { if (c.rep === c || c.rep === undefined) hide(c, row); });
    node.ops.forEach(op => { op.row = row; });
  };
  const walk = (node, depth) => {
    for (const row of rowsInside(node)) {
      Object.assign(row, {depth, y, h: ROW});
      rows.push(row);
      y += ROW + 2;
      if (row.forward) row.forward.row = row;
      if (row.backward) row.backward.row = row;
      if (row.forward || row.backward) continue;
      row.module = true;
      if (!row.node.expanded) {
        hide(row.node, row);
        continue;
      }
      row.node.row = row;
      walk(row.node, depth + 1);
      row.end = y;
      y += PAD;
    }
  };
  walk(m.root, 0);
  m.root.row = null;
  return {rows, height: y};
}

// --- edges ----------------------------------------------------------------------------------------
// The ops that make a conversion's operands, and those that read its results, through other steps.
function endsOf(m, box) {
  const from = new Set();
  const to = new Set();
  const back = v => {
    const row = m.rows[m.maker.get(v)];
    if (!row) return;
    if (row.collective) row.in.forEach(back);
    else from.add(row);
  };
  const forth = v => {
    for (const id of m.readers.get(v) || []) {
      const row = m.rows[id];
      if (row.collective) row.out.forEach(forth);
      else to.add(row);
    }
  };
  box.in.forEach(back);
  box.out.forEach(forth);
  return {from: [...from], to: [...to]};
}

// Conversions between the same two rows are one edge.
function edgesOf(m, rows) {
  const edges = new Map();
  for (const box of m.talks) {
    box.ends = box.ends || endsOf(m, box);
    const at = ops => ops.map(op => op.rep && op.rep.row).filter(Boolean);
    const from = at(box.ends.from);
    const to = at(box.ends.to);
    const all = from.concat(to);
    if (!all.length) continue;
    const side = box.phase === 'forward' && box.purpose !== 'gradients' && box.purpose !== 'updates' ? 'left' : 'right';
    let a = from[0] || to[0];
    let b = to[0] || from[0];
    if (box.in.length > 1) {
      a = all.reduce((x, r) => r.y < x.y ? r : x);
      b = all.reduce((x, r) => r.y > x.y ? r : x);
    }
    const key = [side, a.y, b.y, box.collective, box.in.length > 1].join();
    const e = edges.get(key) || {side, a, b, collective: box.collective, bucket: box.in.length > 1, purpose: box.purpose,
                                 boxes: [], bytes: 0};
    e.boxes.push(box);
    e.bytes += box.bytes;
    edges.set(key, e);
  }
  return [...edges.values()];
}

// --- drawing --------------------------------------------------------------------------------------
function geometry(m, width) {
  const used = m.root.place;
  const labels = width > 680;
  const lanes = used.length > 1 && used.length <= 6 && (width - 2 * 44) / used.length > 300 ? used.slice().sort((a, b) => a - b) : null;
  const left = lanes ? 44 : labels ? (width > 760 ? 176 : 158) : 22;
  const right = lanes ? 44 : labels ? 196 : 30;
  const each = width / (lanes ? lanes.length : 1);
  return {lanes, left, right, each, inner: each - left - right, labels: labels && !lanes,
          lane: place => lanes ? Math.max(0, lanes.indexOf(place)) : 0};
}

function rowBox(g, row) {
  const places = row.module || !row.node ? row.node.place : (row.forward || row.backward).out.length
    ? [row.laneOf] : row.node.place;
  const lanes = (row.module ? row.node.place : places).map(g.lane);
  const first = Math.min(...(lanes.length ? lanes : [0]));
  const last = Math.max(...(lanes.length ? lanes : [0]));
  const indent = row.depth * 9;
  return {x: first * g.each + g.left + indent, w: (last - first) * g.each + g.inner - 2 * indent};
}

function moduleLabel(node) {
  const n = node.times;
  return n > 1 ? `${node.name}–${node.copies[n - 1].name}` : node.name;
}

const timesText = n => n > 1 ? ` ×${n}` : '';

function moduleRow(m, view, row) {
  const node = row.node;
  const last = node.last === undefined ? (node.last = lastForward(node)) : node.last;
  const sbp = last ? m.value(last.out[0]).sbp : 'B';
  const sum = key => node.copies.reduce((s, c) => s + c[key], 0);
  const forward = sum('forward_s');
  const backward = sum('backward_s');
  const toggles = rowsInside(node).length > 0;
  const name = (node.path || 'program') + timesText(node.times);
  const box = el('div', {class: 'module' + (node.expanded ? ' open' : ''), style: `--sbp:${sbpColours(sbp)}`,
                         'data-module': node.path, 'data-forward': forward, 'data-backward': backward}, [
    el('button', {type: 'button', class: 'caret', 'aria-expanded': String(!!node.expanded), disabled: !toggles,
                  'aria-label': (node.expanded ? 'close ' : 'open ') + name, onclick: () => view.toggle(node)},
       toggles ? (node.expanded ? '▾' : '▸') : '·'),
    el('button', {type: 'button', class: 'name', onclick: () => view.select({node}), title: node.path, 'aria-label':
                  `${name}: ${sbp}, forward ${secondsText(forward)}, backward ${secondsText(backward)}`}, [
      el('b', {}, moduleLabel(node)), node.times > 1 ? el('span', {class: 'times'}, '×' + node.times) : null]),
    el('span', {class: 'sig'}, sbp), el('span', {class: 'time'}, secondsText(forward)),
    el('span', {class: 'back'}, backward ? ['◂ ', secondsText(backward)] : '')]);
  return box;
}

function opBox(m, view, op, side) {
  if (!op) return null;
  const sbp = op.out.length ? m.value(op.out[0]).sbp : 'B';
  const title = op.phase === 'source' ? op.name.split('.').pop() :
    op.op + (op.phase !== 'update' && op.name !== m.nodes[op.module].path ? ' ' + op.name : '');
  const mark = op.phase === 'source' ? (op.op === 'input' ? '⇢ ' : '▪ ') : op.phase === 'update' ? '↻ ' : '';
  const other = op.alternatives[0];
  return el('button', {type: 'button', class: `op ${op.phase} ${side}`, style: `--sbp:${sbpColours(sbp)}`,
                       'data-op': op.id, onclick: () => view.select({row: op}), onmouseleave: hideTip,
                       onmousemove: e => showTip(e, [
                         rowTitle(op), op.in.map(v => m.value(v).sbp).join(', ') + (op.in.length ? ' → ' : '') + op.out.map(v => m.value(v).sbp).join(', '),
                         op.why === 'said' ? 'said by the file' : other ? `next best: ${other.out.join(', ')}, +${secondsText(other.more_s)}` : '',
                         sourceText(op)]),
                       'aria-label': `${op.phase} ${rowTitle(op)}: ${sbp}, ${secondsText(op.cost_s)}`}, [
    el('span', {class: 'name'}, mark + title), el('span', {class: 'sig'}, sbp),
    el('span', {class: 'time'}, op.cost_s ? secondsText(op.cost_s) : '')]);
}

function rowElement(m, view, g, row) {
  const op = row.forward || row.backward;
  if (op) row.laneOf = op.out.length ? m.value(op.out[0]).placement : row.node.place[0];
  const {x, w} = row.box = rowBox(g, row);
  const place = `left:${x}px;top:${row.y}px;width:${Math.max(w, 40)}px;height:${ROW}px`;
  if (row.module) {
    const head = moduleRow(m, view, row);
    head.setAttribute('style', head.getAttribute('style') + ';' + place);
    return head;
  }
  return el('div', {class: 'ops', style: place}, [opBox(m, view, row.forward, 'fore') || el('span', {class: 'none'}),
                                                  opBox(m, view, row.backward, 'back') || el('span', {class: 'none'})]);
}

const purposeColour = p => `var(--p-${p})`;

function edgeText(e) {
  return (e.boxes.length > 1 ? e.boxes.length + '× ' : '') + e.collective + ' ' + bytesText(e.bytes);
}

function edgePath(g, e) {
  const ya = e.a.y + ROW / 2;
  const yb = e.b.y + ROW / 2;
  const sign = e.side === 'left' ? -1 : 1;
  const edge = r => e.side === 'left' ? r.box.x : r.box.x + r.box.w;
  const xa = edge(e.a);
  const xb = edge(e.b);
  const room = g.labels ? 34 : g.left - 8;
  if (g.lanes && Math.abs(xa - xb) > g.each / 2) { // from lane to lane
    const right = xb > xa;
    const from = right ? e.a.box.x + e.a.box.w : e.a.box.x;
    const to = right ? e.b.box.x : e.b.box.x + e.b.box.w;
    const middle = (from + to) / 2;
    return {d: `M${from} ${ya}C${middle} ${ya} ${middle} ${yb} ${to} ${yb}`, x: middle, y: (ya + yb) / 2};
  }
  const outer = sign < 0 ? Math.min(xa, xb) : Math.max(xa, xb);
  const label = sign < 0 ? g.left - 24 : g.each - g.right + 46;
  if (ya === yb) return {d: `M${xa} ${ya}h${sign * 12}`, x: sign < 0 ? Math.min(label, xa - 14) : label, y: ya};
  const bulge = Math.min(room, 10 + 5 * Math.log2(1 + Math.abs(yb - ya) / ROW));
  const far = outer + sign * bulge;
  if (e.bucket) return {d: `M${outer + sign * 3} ${ya}H${far}V${yb}H${outer + sign * 3}`, x: label, y: (ya + yb) / 2};
  return {d: `M${xa} ${ya}C${far} ${ya} ${far} ${yb} ${xb} ${yb}`, x: label, y: (ya + yb) / 2};
}

function drawEdges(m, view, g, edges, width, height) {
  const drawing = svg('svg', {class: 'edges', width, height, 'aria-hidden': 'true'});
  const most = Math.max(1, ...edges.map(e => e.bytes));
  const taken = {left: [], right: []};
  edges.sort((a, b) => b.bytes - a.bytes);
  for (const e of edges) {
    const p = edgePath(g, e);
    const thick = Math.max(1.2, Math.min(14, g.left / 3) * e.bytes / most);
    const group = svg('g', {class: 'edge', 'data-bytes': e.bytes, 'data-calls': e.boxes.length,
                            onmousemove: ev => showTip(ev, [edgeText(e), PURPOSES[e.purpose], e.boxes[0].reason,
                              e.boxes.length > 1 ? `and ${e.boxes.length - 1} more` : '', axisText(m, e.boxes[0]) + ', ' +
                              secondsText(e.boxes.reduce((s, b) => s + b.cost_s, 0))]),
                            onmouseleave: hideTip, onclick: () => view.select(e.boxes.length > 1 ? {edge: e} : {row: e.boxes[0]})}, [
      svg('path', {d: p.d, class: 'hit'}),
      svg('path', {d: p.d, 'stroke-width': thick.toFixed(1), style: 'stroke:' + purposeColour(e.purpose),
                   class: e.bucket ? 'bracket' : null})]);
    drawing.append(group);
    if (!g.labels || taken[e.side].some(y => Math.abs(y - p.y) < 12)) continue;
    taken[e.side].push(p.y);
    group.append(svg('text', {x: p.x, y: p.y + 3.5, 'text-anchor': e.side === 'left' ? 'end' : 'start'}, edgeText(e)));
  }
  return drawing;
}

function legend(m) {
  const sbps = new Set();
  for (const v of m.plan.values) for (const s of parseSbp(v.sbp)) sbps.add(s.kind === 'S' ? `S(${s.axis})` : s.kind);
  const purposes = Object.keys(PURPOSES).filter(p => m.talks.some(b => b.purpose === p));
  return el('div', {class: 'legends'}, [
    el('ul', {class: 'legend'}, [...sbps].sort().map(s => el('li', {}, [
      el('span', {class: 'dot', style: 'background:' + sbpColours(s), 'aria-hidden': 'true'}),
      {B: 'B: a copy on each rank', P: 'P: addends of a sum'}[s] || s + ': split along axis ' + s.slice(2, -1)]))),
    el('ul', {class: 'legend'}, purposes.map(p => el('li', {}, [
      el('span', {class: 'line', style: 'background:' + purposeColour(p), 'aria-hidden': 'true'}), PURPOSES[p]]))),
    el('p', {class: 'quiet'}, 'Forward runs down on the left, backward runs up on the right. Edges are as thick as their bytes.')]);
}

function program(m, select) {
  findReps(m);
  expandFirst(m);
  const map = el('div', {class: 'map', role: 'group', 'aria-label': 'modules of the program'});
  const heads = el('div', {class: 'lanes'});
  const view = {select, map};
  view.draw = () => {
    const width = map.clientWidth || 800;
    const g = geometry(m, width);
    const {rows, height} = layOut(m);
    const parts = rows.map(row => rowElement(m, view, g, row));
    const frames = rows.filter(r => r.end).map(r => el('div', {class: 'frame', 'aria-hidden': 'true', style:
      `left:${r.box.x}px;top:${r.y}px;width:${r.box.w}px;height:${r.end - r.y + 1}px`}));
    heads.replaceChildren(...(g.lanes || []).map(p => el('div', {}, placementText(m.plan.placements[p]))));
    map.style.height = height + 'px';
    map.replaceChildren(...frames, drawEdges(m, view, g, edgesOf(m, rows), width, height), ...parts);
  };
  view.toggle = node => {
    node.expanded = !node.expanded;
    view.draw();
    const again = [...map.querySelectorAll('.module')].find(x => x.dataset.module === node.path);
    if (again) again.querySelector('.caret').focus();
  };
  const all = open => () => {
    const walk = n => {
      n.expanded = open && rowsInside(n).length > 0;
      n.folded.forEach(walk);
    };
    m.root.folded.forEach(walk);
    view.draw();
  };
  map.addEventListener('keydown', e => {
    const step = {ArrowDown: 1, ArrowUp: -1}[e.key];
    const button = e.target.closest('button');
    if (!button) return;
    if (step) {
      const names = [...map.querySelectorAll('button.name, button.op')];
      const at = names.indexOf(button.closest('.module') ? button.closest('.module').querySelector('button.name') : button);
      const next = names[at + step];
      if (next) next.focus();
      e.preventDefault();
    } else if (e.key === 'ArrowRight' || e.key === 'ArrowLeft') {
      const module = button.closest('.module');
      const caret = module && module.querySelector('.caret');
      if (caret && (caret.getAttribute('aria-expanded') === 'true') === (e.key === 'ArrowLeft')) caret.click();
    }
  });
  onWidth(map, view.draw);
  return [
    el('div', {class: 'tools'}, [el('button', {type: 'button', onclick: all(true)}, 'open all'),
                                 el('button', {type: 'button', onclick: all(false)}, 'close all')]),
    legend(m), heads, map];
}
