// SPDX-License-Identifier: Apache-2.0
// A plan's JSON with what the views ask of it: rows by id, the tree of modules, repeats folded.
'use strict';

const COMPUTE_ROW = {forward: 1, backward: 1, update: 1};

function makeModel(plan) {
  const m = {plan, rows: [], maker: new Map(), readers: new Map()};
  for (const op of plan.ops) m.rows[op.id] = op;
  for (const box of plan.boxing) m.rows[box.id] = box;
  for (const row of m.rows) {
    for (const v of row.out) m.maker.set(v, row.id);
    for (const v of row.in) {
      if (!m.readers.has(v)) m.readers.set(v, []);
      m.readers.get(v).push(row.id);
    }
  }
  m.talks = plan.boxing.filter(b => b.communicates);
  m.value = v => plan.values[v];
  m.placement = v => plan.placements[plan.values[v].placement];
  m.end = v => ({shape: plan.values[v].shape, sbp: plan.values[v].sbp,
                 hierarchy: m.placement(v).hierarchy, ranks: m.placement(v).ranks,
                 pieces: piecesOf(plan.values[v].pieces, plan.splits)});
  findModules(m);
  return m;
}

// --- the tree -------------------------------------------------------------------------------------
function findModules(m) {
  const nodes = m.plan.modules.map(x => ({id: x.id, path: x.path, name: x.path.split('.').pop(), children: [], ops: [],
                                         parent: null, times: 1, forward_s: 0, backward_s: 0, update_s: 0,
                                         first: Infinity, talk_bytes: 0, talks: 0}));
  m.plan.modules.forEach(x => {
    if (x.parent === undefined) return;
    nodes[x.id].parent = nodes[x.parent];
    nodes[x.parent].children.push(nodes[x.id]);
  });
  m.nodes = nodes;
  m.root = nodes[0];
  for (const op of m.plan.ops) {
    const node = nodes[op.module];
    if (op.phase === 'source' && (m.value(op.out[0]).memory === 'optimizer')) continue;
    node.ops.push(op);
    const first = op.phase === 'forward' || op.phase === 'source' ? op.id : Infinity;
    for (let n = node; n; n = n.parent) {
      if (op.phase !== 'source') n[op.phase + '_s'] += op.cost_s;
      if (op.phase === 'forward') n.first = Math.min(n.first, first);
    }
  }
  m.home = row => nodeOfRow(m, row);
  for (const box of m.talks) {
    const a = m.home(box);
    for (let n = a; n; n = n.parent) {
      n.talk_bytes += box.bytes;
      n.talks++;
    }
  }
  for (const node of nodes) node.children.sort((a, b) => a.first - b.first || a.id - b.id);
  for (const node of nodes.slice().reverse()) node.shape = shapeOf(m, node);
  for (const node of nodes) foldChildren(node);
  for (const node of nodes) node.place = placeOf(m, node);
}

// The module of a row; a bucket's is the program.
function nodeOfRow(m, row) {
  return m.nodes[row.module];
}

// Equal for modules that do the same: ops, signatures, shapes, and conversions of their own.
function shapeOf(m, node) {
  const ops = node.ops.map(o => [o.op, o.phase, o.out.map(v => {
    const x = m.value(v);
    return x.dtype + x.shape + x.sbp + '@' + x.placement;
  }).join(), o.why].join(' ')).sort().join(';');
  return ops + '{' + node.children.map(c => (/^\d+$/.test(c.name) ? '#' : c.name) + c.shape.length + ':' + hash(c.shape)).join() + '}' +
         node.talks + ',' + node.talk_bytes;
}

function hash(text) {
  let h = 2166136261;
  for (let i = 0; i < text.length; i++) h = Math.imul(h ^ text.charCodeAt(i), 16777619);
  return (h >>> 0).toString(36);
}

// Neighbours that do the same are one, with their number.
function foldChildren(node) {
  node.folded = [];
  for (const child of node.children) {
    const last = node.folded[node.folded.length - 1];
    if (last && /^\d+$/.test(child.name) && last.shape === child.shape && /^\d+$/.test(last.name)) {
      last.times++;
      last.copies.push(child);
      child.stands = last;
    } else {
      child.copies = [child];
      child.stands = child;
      node.folded.push(child);
    }
  }
}

// The placement that most of a module's ops are on.
function placeOf(m, node) {
  const count = new Map();
  const walk = n => {
    for (const o of n.ops) for (const v of o.out) {
      const p = m.value(v).placement;
      count.set(p, (count.get(p) || 0) + 1);
    }
    n.children.forEach(walk);
  };
  walk(node);
  return [...count.entries()].sort((a, b) => b[1] - a[1]).map(x => x[0]);
}

// --- words ----------------------------------------------------------------------------------------
const PURPOSES = {
  forward: 'forward values', backward: 'backward values', statistics: 'statistics of norms', weights: 'weights',
  gradients: 'gradients', updates: 'updated variables', stages: 'values between placements', outputs: 'outputs'};

const rowTitle = row => (row.collective || row.op) + (row.name ? ' ' + row.name : '');

// "dp 16 × tp 8", "2 × 2".
const meshText = p => p.hierarchy.map((n, d) => (p.axes ? p.axes[d] + ' ' : '') + n).join(' × ');

function placementText(p) {
  return p.device + ' ' + meshText(p) + ' (rank' + (p.ranks.length > 1 ? 's ' : ' ') +
         rangesText(p.ranks, 3) + ')';
}

function axisText(m, box) {
  if (!box.dims.length) return 'between placements';
  const p = m.placement(box.in[0]);
  return box.dims.map(d => p.axes && p.axes[d] ? p.axes[d] : 'dim ' + d).join(' + ') + ' (' +
         box.dims.map(d => p.hierarchy[d]).join(' × ') + ')';
}

function sourceText(row) {
  if (!row.file && row.line === undefined) return '';
  return (row.file ? row.file.split('/').pop() : '') + (row.line ? ':' + row.line : '');
}
