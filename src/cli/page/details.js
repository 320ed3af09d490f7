// SPDX-License-Identifier: Apache-2.0
// What is known of one module, op or conversion.
'use strict';

const fact = (name, value) => value === '' || value === null || value === undefined ? [] :
  [el('dt', {}, name), el('dd', {}, value)];

function valueLine(m, v) {
  const x = m.value(v);
  return el('div', {class: 'value'}, [
    chip(x.sbp), ` ${x.dtype}[${x.shape.join(', ')}] `, el('span', {class: 'quiet'}, x.output ? `output ${x.output}` : x.name),
    m.plan.placements.length > 1 ? el('span', {class: 'quiet'}, ' on ' + placementText(m.placement(v))) : null]);
}

function alternatives(op) {
  if (!op.alternatives.length) return null;
  return table('what else it could do, all else as it is', [
    {head: 'operands', header: true, cell: a => a.in.map(chip)},
    {head: 'results', cell: a => a.out.map(chip)},
    {head: 'a step takes', number: true, cell: a => (a.more_s < 0 ? '−' : '+') + secondsText(Math.abs(a.more_s))}], op.alternatives);
}

function opDetails(m, op) {
  const said = op.why === 'said' ? 'said by the file' : op.legal === 1 ? 'the only legal one' :
    op.legal ? `chosen of ${op.legal} legal ones` : 'chosen';
  return [
    el('h3', {}, rowTitle(op)),
    el('dl', {}, [
      fact('part of', op.phase === 'source' ? op.op : op.phase), fact('declared at', sourceText(op)),
      fact('signature', said), ...timesFact(op), fact('time', op.cost_s ? `${secondsText(op.cost_s)}, bound by ${spentText(m, op.bound_by)}` : 'none'),
      fact('reads', op.in.length ? op.in.map(v => valueLine(m, v)) : ''),
      fact('makes', op.out.map(v => valueLine(m, v)))].flat()),
    alternatives(op),
    op.out.length ? drawRegions(m.end(op.out[0]), 'who holds the result') : null];
}

// A repeated op or conversion: its time and bytes are the sums over all micro-batches.
function timesFact(row) {
  return row.times > 1 ? [fact('runs', `${row.times} times a step, once in each micro-batch`)] : [];
}

function boxDetails(m, box) {
  const from = m.value(box.in[0]);
  const to = m.value(box.out[0]);
  const many = box.in.length > 1;
  return [
    el('h3', {}, rowTitle(box)),
    el('dl', {}, [
      fact('because', nameText(box.reason)), fact('converts', PURPOSES[box.purpose]),
      fact('from', many ? [chip(from.sbp), ` ${box.in.length} tensors`] : valueLine(m, box.in[0])),
      fact('to', many ? chip(to.sbp) : valueLine(m, box.out[0])),
      fact('over', axisText(m, box) + (box.link ? `, ${linkText(m, box.link)}` : '')),
      fact('groups', `${box.groups} of ${plural(box.group_size, 'rank')}`),
      fact('bytes', box.communicates ? bytesText(box.bytes) + ' on the busiest rank' : 'nothing is sent'),
      ...timesFact(box), fact('time', secondsText(box.cost_s) + (box.bound_by ? `, bound by ${spentText(m, box.bound_by)}` : '')),
      fact('how', [box.two_phase ? 'scatter and gather; ' : '', box.lane === 'bulk' ? 'while others compute' : 'at once'].join('')),
      fact('declared at', sourceText(box))].flat()),
    many ? el('p', {class: 'quiet'}, 'The first of its tensors:') : null,
    drawRegions(m.end(box.in[0]), 'before'), drawRegions(m.end(box.out[0]), 'after'),
    box.move !== undefined ? drawMatrix(m.plan.moves[box.move]) :
      box.communicates && box.group_size > 64 ? el('p', {class: 'quiet'}, `A group of ${box.group_size} ranks: its matrix of bytes is not drawn.`) : null];
}

function boxTable(m, title, boxes, select) {
  return table(title, [
    {head: 'conversion', header: true, cell: b => el('button', {type: 'button', class: 'link', onclick: () => select({row: b})}, nameText(rowTitle(b)))},
    {head: 'because', cell: b => nameText(b.reason)},
    {head: 'bytes', number: true, cell: b => bytesText(b.bytes)},
    {head: 'time', number: true, cell: b => secondsText(b.cost_s)}], boxes, 12);
}

function edgeDetails(m, e, select) {
  return [el('h3', {}, edgeText(e)), boxTable(m, 'conversions between these two', e.boxes, select), ...boxDetails(m, e.boxes[0]).slice(1)];
}

function nodeDetails(m, node, select) {
  const ops = [];
  const walk = n => {
    ops.push(...n.ops);
    n.children.forEach(walk);
  };
  walk(node);
  const inside = new Set(ops.map(o => o.id));
  const boxes = m.talks.filter(b => {
    const ends = b.ends || (b.ends = endsOf(m, b));
    return b.in.length === 1 && ends.from.concat(ends.to).some(o => inside.has(o.id));
  }).sort((a, b) => b.bytes - a.bytes);
  const parameters = ops.filter(o => o.phase === 'source' && m.value(o.out[0]).memory === 'parameters');
  const held = parameters.reduce((s, o) => s + Math.max(...m.value(o.out[0]).bytes), 0);
  const sum = key => node.copies ? node.copies.reduce((s, c) => s + c[key], 0) : node[key];
  const last = lastForward(node);
  return [
    el('h3', {}, [(node.path || 'program'), node.times > 1 ? ` and ${node.times - 1} more alike, to ${node.copies[node.times - 1].path}` : '']),
    el('dl', {}, [
      fact('forward', secondsText(sum('forward_s'))), fact('backward', secondsText(sum('backward_s'))),
      fact('update', sum('update_s') ? secondsText(sum('update_s')) : ''),
      fact('ops', plural(ops.filter(o => o.phase !== 'source').length, 'op') + (node.times > 1 ? ' each' : '')),
      fact('parameters', parameters.length ? `${plural(parameters.length, 'tensor')}, ${bytesText(held)} on a rank${node.times > 1 ? ', each' : ''}` : ''),
      fact('gives', last ? valueLine(m, last.out[0]) : '')].flat()),
    parameters.length ? table('parameters', [
      {head: 'name', header: true, cell: o => el('button', {type: 'button', class: 'link', onclick: () => select({row: o})}, nameText(o.name))},
      {head: 'shape', cell: o => m.value(o.out[0]).shape.join(' × ')},
      {head: 'signature', cell: o => chip(m.value(o.out[0]).sbp)}], parameters, 8) : null,
    boxes.length ? boxTable(m, 'conversions at its ops', boxes, select) : el('p', {class: 'quiet'}, 'No conversion of its own.'),
    last ? drawRegions(m.end(last.out[0]), 'who holds the result') : null];
}

// The panel; `what` is {row}, {node} or {edge}.
function details(m) {
  const body = el('div', {class: 'details-body'});
  const panel = el('aside', {class: 'details', 'aria-label': 'details', 'aria-live': 'polite'}, [
    el('button', {type: 'button', class: 'close', 'aria-label': 'close details', onclick: () => panel.classList.remove('shown')}, '×'), body]);
  const select = (what, quietly) => {
    const parts = what.node ? nodeDetails(m, what.node, select) : what.edge ? edgeDetails(m, what.edge, select) :
      what.row.collective ? boxDetails(m, what.row) : opDetails(m, what.row);
    body.replaceChildren(...parts.filter(Boolean));
    if (!quietly) panel.classList.add('shown');
    panel.scrollTop = 0;
  };
  return {panel, select};
}
