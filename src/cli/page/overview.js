// SPDX-License-Identifier: Apache-2.0
// The first look: a plan's main figures, what its time goes to, memory, and traffic.
'use strict';

const card = (name, value, note) =>
  el('div', {class: 'card'}, [el('div', {class: 'card-name'}, name), el('div', {class: 'card-value'}, value),
                              el('div', {class: 'card-note'}, note)]);

// Parts of one whole, side by side: {name, value, text, colour, path}.
function stackedBar(title, parts, whole) {
  const shown = parts.filter(p => p.value > 0);
  return el('div', {class: 'stacked'}, [
    el('div', {class: 'stack', role: 'img', 'aria-label': title + ': ' + shown.map(p => p.name + ' ' + p.text).join(', ')},
       shown.map(p => el('span', {style: `width:${(100 * p.value / whole).toFixed(3)}%;background:${p.colour}`,
                                  onmousemove: e => showTip(e, [p.name, p.text + ', ' + percent(p.value, whole)]),
                                  onmouseleave: hideTip}))),
    el('ul', {class: 'legend'}, shown.map(p => el('li', {}, [
      el('span', {class: 'dot', style: 'background:' + p.colour, 'aria-hidden': 'true'}), p.name + ' ',
      figure(p.path, p.value, p.text), el('span', {class: 'quiet'}, ' ' + percent(p.value, whole))])))]);
}

// What a link is, or its number; what time is spent on, with its link so.
const linkText = (m, link) => m.plan.model.links[link - 1]?.name || 'link ' + link;
const spentText = (m, name) => name.replace(/^link (\d+)/, (_, link) => linkText(m, link));

// The uses of a step's time, longest first, where a link's bytes and hand-shakes are one.
function shares(m) {
  const by = new Map();
  for (const [name, s] of Object.entries(m.plan.step.spent_s)) {
    const use = name.replace(/^(link \d+) .*/, '$1');
    const known = by.get(use) || {use, name, s: 0, most: 0};
    if (s > known.most) Object.assign(known, {name, most: s});
    known.s += s;
    by.set(use, known);
  }
  return [...by.values()].sort((a, b) => b.s - a.s);
}

// "NVLink", "NVLink hand-shakes" where these take more of it than bytes.
const shareText = (m, share) => spentText(m, share.name).replace(/ bytes$/, '');

function spentColour(name) {
  if (name === 'compute') return 'var(--c-forward)';
  if (name === 'memory') return 'var(--c-memory)';
  if (name === 'kernel starts') return 'var(--c-start)';
  const m = /^link (\d+) (.*)$/.exec(name);
  return m ? `var(--c-link${m[1]}${m[2] === 'bytes' ? '' : '-shake'})` : 'var(--c-other)';
}

const MEMORY = [
  ['parameters', 'parameters', 'var(--m-parameters)'], ['masters', 'master weights', 'var(--m-masters)'],
  ['buffers', 'buffers', 'var(--m-buffers)'],
  ['optimizer', 'optimizer states', 'var(--m-optimizer)'], ['inputs_outputs', 'inputs and outputs', 'var(--m-ports)'],
  ['gradients', 'gradients', 'var(--m-gradients)'], ['activations', 'activations', 'var(--m-activations)'],
  ['communication', 'results of collectives', 'var(--m-communication)'], ['scratch', "kernels' scratch", 'var(--m-scratch)'],
  ['other', 'gaps', 'var(--m-other)']];

function cards(m) {
  const p = m.plan;
  const step = p.step;
  const most = shares(m)[0];
  const worst = p.memory[0];
  const gap = step.signatures_cost_s > 0 ? step.lower_bound_s / step.signatures_cost_s : 1;
  const meshes = [...new Set(p.placements.map(meshText))].join(', ');
  return el('div', {class: 'cards'}, [
    card('a step takes (estimate)', figure('step.cost_s', step.cost_s, secondsText(step.cost_s)),
         [step.tokens_per_s ? countText(step.tokens_per_s) + ' tokens/s; ' : step.samples_per_s ? countText(step.samples_per_s) + ' samples/s; ' : '',
          step.mfu ? `MFU ${(100 * step.mfu).toFixed(1)} %; ` : '',
          figure('timeline.end_s', p.timeline.end_s, secondsText(p.timeline.end_s)), ' if communication overlaps']),
    card('bound by', figure('step.bound_by', step.bound_by, most ? shareText(m, most) : 'nothing'),
         most ? percent(most.s, step.cost_s) + ' of the time' : ''),
    card('memory of the neediest rank', worst ? figure('memory.0.total', worst.total, bytesText(worst.total)) : '0 B',
         worst ? ranksText(worst) : ''),
    card('communication', figure('totals.bytes', p.totals.bytes, bytesText(p.totals.bytes)),
         [plural(m.talks.length, 'call') + ', ', figure('step.communication_s', step.communication_s, secondsText(step.communication_s))]),
    card('ranks', figure('ranks', p.ranks, String(p.ranks)), 'mesh ' + meshes),
    card('signatures', step.exact ? 'proven cheapest' : 'by bounded search',
         step.exact ? 'by the model' : gap === 0 ? 'of too many for a bound' : gap > 0.99995 ? 'as low as any could be' : 'within ' + (100 * (1 / gap - 1)).toFixed(2) + ' % of a lower bound')]);
}

function timeBar(m) {
  return [el('h3', {}, 'What the time goes to'),
          stackedBar('time of a step', shares(m).map(x => (
            {name: shareText(m, x), value: x.s, text: secondsText(x.s), colour: spentColour(x.name), path: 'spent.' + x.use})), m.plan.step.cost_s)];
}

function memoryBars(m) {
  const most = Math.max(1, ...m.plan.memory.map(x => x.total));
  const limit = m.plan.memory_limit || 0;
  const near = limit <= 3 * most; // else the limit would make the bars too short to read
  const whole = near ? Math.max(most, limit) : most;
  const out = [el('h3', {}, 'Memory of a rank, when most is alive')];
  m.plan.memory.slice(0, 8).forEach((x, i) => {
    const shown = MEMORY.filter(([key]) => x[key] > 0);
    out.push(el('div', {class: 'memory-row'}, [
      el('div', {class: 'memory-name'}, [ranksText(x) + ' ',
        figure(`memory.${i}.total`, x.total, bytesText(x.total))]),
      el('div', {class: 'stack', role: 'img', 'aria-label': shown.map(([key, name]) => name + ' ' + bytesText(x[key])).join(', ')}, [
        ...shown.map(([key, name, colour]) => el('span', {
          style: `width:${(100 * x[key] / whole).toFixed(3)}%;background:${colour}`,
          onmousemove: e => showTip(e, [name, bytesText(x[key]) + ', ' + percent(x[key], x.total)]), onmouseleave: hideTip})),
        limit && near ? el('i', {class: 'limit', style: `left:${(100 * limit / whole).toFixed(2)}%`, title: 'limit ' + bytesText(limit)}) : null])]));
  });
  out.push(el('ul', {class: 'legend'}, MEMORY.filter(([key]) => m.plan.memory.some(x => x[key] > 0)).map(([key, name, colour]) =>
    el('li', {}, [el('span', {class: 'dot', style: 'background:' + colour, 'aria-hidden': 'true'}), name + ' ',
                  figure('memory.0.' + key, m.plan.memory[0][key], bytesText(m.plan.memory[0][key]))]))));
  if (m.plan.memory.length > 8) out.push(el('p', {class: 'quiet'}, `and ${m.plan.memory.length - 8} more kinds of ranks`));
  if (limit) out.push(el('p', {class: 'quiet'}, ['the limit is ', figure('memory_limit', limit, bytesText(limit)), ', of which the neediest rank takes ' + percent(most, limit)]));
  return out;
}

function overview(m) {
  return [el('p', {class: 'strategy'}, figure('layout', m.plan.layout, m.plan.layout)), cards(m),
          el('div', {class: 'two'}, [el('div', {}, timeBar(m)), el('div', {}, memoryBars(m))])];
}

// --- traffic --------------------------------------------------------------------------------------
function traffic(m) {
  if (!m.talks.length) return [el('p', {}, 'Nothing is sent: every rank has what it reads.')];
  const axes = new Map();
  const by = {};
  for (const b of m.talks) {
    const axis = axisText(m, b);
    axes.set(axis, (axes.get(axis) || 0) + b.bytes);
    by[b.purpose] = by[b.purpose] || {};
    by[b.purpose][axis] = (by[b.purpose][axis] || 0) + b.bytes;
  }
  const names = [...axes.keys()].sort();
  const purposes = Object.keys(PURPOSES).filter(p => by[p]);
  const most = Math.max(1, ...purposes.flatMap(p => Object.values(by[p])));
  const rows = purposes.map(p => ({p, cells: by[p], sum: Object.values(by[p]).reduce((a, b) => a + b, 0)}));
  const columns = [{head: 'what is converted', header: true, cell: r => PURPOSES[r.p]}];
  names.forEach(a => columns.push({head: 'over ' + a, number: true, cell: r => r.cells[a] === undefined ? '' :
    el('span', {class: 'heat', style: `--heat:${(r.cells[a] / most).toFixed(3)}`},
       figure(`traffic.${r.p}.${a}`, r.cells[a], bytesText(r.cells[a])))}));
  columns.push({head: 'all', number: true, cell: r => figure(`traffic.${r.p}`, r.sum, bytesText(r.sum))});
  const kinds = m.plan.totals.collectives;
  const mostBytes = Math.max(1, ...kinds.map(k => k.bytes));
  const reasons = new Map();
  for (const b of m.talks) {
    const reason = b.reason.replace(/(?<=[. ])\d+(?=[. ]|$)/g, '*');
    const key = reason + '|' + b.collective;
    const r = reasons.get(key) || {reason: b.reason, collective: b.collective, calls: 0, bytes: 0, cost_s: 0};
    r.calls += b.times || 1;
    r.bytes += b.bytes;
    r.cost_s += b.cost_s;
    if (r.calls > 1 && r.reason !== b.reason) r.reason = reason;
    reasons.set(key, r);
  }
  return [
    el('p', {class: 'quiet'}, 'Bytes that the busiest rank reads from others in a step.'),
    table('by what is converted and the axis of the mesh', columns, rows),
    table('by collective', [
      {head: 'collective', header: true, cell: k => k.collective},
      {head: 'calls', number: true, cell: (k, i) => figure(`totals.collectives.${i}.calls`, k.calls, String(k.calls))},
      {head: 'bytes', number: true, cell: (k, i) => [bar(k.bytes, mostBytes), figure(`totals.collectives.${i}.bytes`, k.bytes, bytesText(k.bytes))]},
      {head: 'time', number: true, cell: (k, i) => figure(`totals.collectives.${i}.cost_s`, k.cost_s, secondsText(k.cost_s))}], kinds),
    table('by reader', [
      {head: 'because', header: true, cell: r => nameText(r.reason)},
      {head: 'collective', cell: r => r.collective},
      {head: 'calls', number: true, cell: r => r.calls},
      {head: 'bytes', number: true, cell: r => bytesText(r.bytes)},
      {head: 'time', number: true, cell: r => secondsText(r.cost_s)}],
      [...reasons.values()].sort((a, b) => b.bytes - a.bytes), 12)];
}
