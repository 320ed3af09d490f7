// SPDX-License-Identifier: Apache-2.0
// The page of one conversion: who holds what before and after each step, and who reads from whom.
'use strict';

const stepName = s => s.kind + (s.two_phase ? ' (2 phases)' : '');

function boxEnd(data, end, sbp, pieces) {
  return {shape: data.shape, sbp, hierarchy: end.hierarchy, ranks: end.parts.map(p => p.rank), pieces: piecesOf(pieces, data.splits)};
}

function boxStep(data, s, i) {
  const from = s.on_destination && !s.crosses ? data.to : data.from;
  const to = s.on_destination || s.crosses ? data.to : data.from;
  return section('step-' + (i + 1), `Step ${i + 1}: ${stepName(s)}`, [
    el('p', {}, [plural(s.groups, 'group') + ' of ' + plural(s.group_size, 'rank') + (s.crosses ? ', from one placement to the other' :
      s.dims.length ? ', over dimension ' + s.dims.join(', ') : '') + (s.link ? ', ' + s.link : '') + '; ',
      figure(`steps.${i}.bytes_busiest_rank`, s.bytes_busiest_rank, bytesText(s.bytes_busiest_rank)), ' on the busiest rank',
      s.bytes_all_ranks === undefined ? '' : [', ', figure(`steps.${i}.bytes_all_ranks`, s.bytes_all_ranks, bytesText(s.bytes_all_ranks)), ' on all']
    , '; ', figure(`steps.${i}.cost_s`, s.cost_s, secondsText(s.cost_s)), '.'].flat()),
    el('div', {class: 'three'}, [
      drawRegions(boxEnd(data, from, s.from, s.from_pieces), 'before'), drawRegions(boxEnd(data, to, s.to, s.to_pieces), 'after'),
      s.move ? drawMatrix(s.move) : s.bytes_busiest_rank && s.group_size > 64 ?
        el('p', {class: 'quiet'}, `A group of ${s.group_size} ranks: its matrix of bytes is not drawn.`) : null])]);
}

function boxOthers(data) {
  const columns = [
    {head: 'steps', header: true, cell: r => r.steps.flatMap((s, i) => [i ? ', ' : '', stepName(s) + ' to ', chip(s.to)])},
    {head: 'time', number: true, cell: (r, i) => figure(`others.${i}.cost_s`, r.cost_s, secondsText(r.cost_s))},
    {head: 'longer by', number: true, cell: r => secondsText(r.cost_s - data.cost_s)},
    {head: 'read by the busiest rank', number: true, cell: (r, i) => figure(`others.${i}.bytes_busiest_rank`, r.bytes_busiest_rank, bytesText(r.bytes_busiest_rank))},
    {head: 'why it lost', cell: r => r.why}];
  return section('others', 'Other ways', [el('p', {class: 'quiet'}, 'The best of those that begin otherwise.'),
                                          table('routes that lost', columns, data.others)]);
}

function boxRun(data) {
  const run = data.run;
  return section('run', 'A run on thread ranks', [
    el('p', {}, run.values_right ? `Values are those of the definition (${run.elements_compared} compared).` :
      'Values differ from the definition: ' + run.difference),
    table('bytes read', [
      {head: 'rank', header: true, cell: r => r.rank},
      {head: 'planned', number: true, cell: (r, i) => figure(`run.ranks.${i}.bytes_planned`, r.bytes_planned, bytesText(r.bytes_planned))},
      {head: 'read', number: true, cell: (r, i) => figure(`run.ranks.${i}.bytes_read`, r.bytes_read, bytesText(r.bytes_read))}], run.ranks, 16)]);
}

function boxPage(data) {
  const bytes = figure('bytes_busiest_rank', data.bytes_busiest_rank, bytesText(data.bytes_busiest_rank));
  const main = el('main', {class: 'box'}, [
    section('overview', 'From one signature to the other', [
      el('div', {class: 'cards'}, [
        card('takes', figure('cost_s', data.cost_s, secondsText(data.cost_s)), ['no route takes less than ', figure('bound_s', data.bound_s, secondsText(data.bound_s))]),
        card('read by the busiest rank', bytes, plural(data.steps.length, 'step')),
        card('held at a time', figure('peak_bytes', data.peak_bytes, bytesText(data.peak_bytes)), 'on the busiest rank')]),
      el('div', {class: 'three'}, [drawRegions(boxEnd(data, data.from, data.from.sbp, data.from.pieces), 'from'),
                                drawRegions(boxEnd(data, data.to, data.to.sbp, data.to.pieces), 'to')])]),
    ...data.steps.map((s, i) => boxStep(data, s, i)),
    data.others.length ? boxOthers(data) : '', data.run ? boxRun(data) : ''].filter(Boolean));
  const links = [['overview', 'Overview'], ...data.steps.slice(0, 6).map((s, i) => [`step-${i + 1}`, `Step ${i + 1}`])];
  if (data.others.length) links.push(['others', 'Other ways']);
  return [header(`${data.from.sbp} → ${data.to.sbp}`, `${data.dtype}[${data.shape.join(', ')}]`, links), el('div', {class: 'columns single'}, main)];
}
