// SPDX-License-Identifier: Apache-2.0
// Two plans beside each other: their figures, the tensors that differ, and each plan's own views.
'use strict';

const LETTERS = ['A', 'B'];

function ratioText(a, b) {
  if (a === b) return '=';
  if (!a) return 'new';
  if (!b) return 'gone';
  const r = b / a;
  return r >= 1.1 || r <= 0.9 ? '× ' + (r >= 100 ? r.toFixed(0) : r >= 10 ? r.toFixed(1) : r.toFixed(2)) : (r > 1 ? '+' : '−') + (100 * Math.abs(r - 1)).toFixed(2) + ' %';
}

// Of sizes also how much more it is.
const sizeText = (a, b) => ratioText(a, b) + (a === b ? '' : ` (${b < a ? '−' : '+'}${bytesText(Math.abs(b - a))})`);

const better = (a, b) => b < a * 0.9995 ? 'better' : b > a * 1.0005 ? 'worse' : null;

// A row is {name, path, values, text}.
function figureTable(caption, rows) {
  return table(caption, [
    {head: '', header: true, cell: r => r.name},
    ...LETTERS.map((letter, i) => ({head: letter, number: true, cell: r => [
      bar(r.values[i], Math.max(...r.values)), figure(`plans.${i}.${r.path}`, r.values[i], r.text(r.values[i]))]})),
    {head: 'B to A', number: true, cell: r => el('span', {class: r.neutral ? null : better(...r.values)}, (r.text === bytesText ? sizeText : ratioText)(...r.values))}], rows, 40);
}

function comparedFigures(ms) {
  const get = (path, of = secondsText, name, neutral) => ({name, path, text: of, neutral,
    values: ms.map(m => path.split('.').reduce((at, word) => at === undefined ? undefined : at[word], m.plan) || 0)});
  const spent = ms.map(m => new Map(shares(m).map(x => [x.use, x.s])));
  const uses = [...new Set(spent.flatMap(of => [...of.keys()]))];
  const rows = [
    get('step.cost_s', secondsText, 'a step (estimate)'), get('timeline.end_s', secondsText, 'if communication overlaps'),
    ...uses.map(use => ({name: '· ' + [...new Set(ms.filter((m, i) => spent[i].has(use)).map(m => spentText(m, use)))].join(', '), path: 'spent.' + use, text: secondsText, values: spent.map(of => of.get(use) || 0)})),
    get('totals.bytes', bytesText, 'communication, on the busiest rank'),
    get('memory.0.total', bytesText, 'memory of the neediest rank'),
    ...MEMORY.map(([key, name]) => get('memory.0.' + key, bytesText, '· ' + name)).filter(r => r.values.some(v => v > 0)),
    get('ranks', String, 'ranks', true)];
  return figureTable('figures', rows);
}

// Rows of both plans by what they are: name, kind and the how-manieth of these.
function matched(ms) {
  const all = new Map();
  ms.forEach((m, i) => {
    const count = new Map();
    for (const op of m.plan.ops) {
      if (!op.out.length) continue;
      const what = [op.phase, op.op, op.name].join('\n');
      count.set(what, (count.get(what) || 0) + 1);
      const key = what + '\n' + count.get(what);
      if (!all.has(key)) all.set(key, [null, null]);
      all.get(key)[i] = op;
    }
  });
  return [...all.values()];
}

const signatureOf = (m, op) => ({sbp: m.value(op.out[0]).sbp, place: placementText(m.placement(op.out[0]))});

// Tensors of which the signature differs; those of numbered modules that differ alike are one row. And how
// many live on which other ranks.
function differences(ms) {
  const groups = new Map();
  const moved = new Map();
  const only = [0, 0];
  for (const [a, b] of matched(ms)) {
    if (!a || !b) {
      only[a ? 0 : 1]++;
      continue;
    }
    const x = signatureOf(ms[0], a);
    const y = signatureOf(ms[1], b);
    const pair = x.place + '\n' + y.place;
    if (x.place !== y.place) moved.set(pair, {places: [x.place, y.place], count: (moved.get(pair) || {count: 0}).count + 1});
    if (x.sbp === y.sbp) continue;
    const name = a.name.replace(/(^|\.)\d+(?=\.|$)/g, '$1*');
    const key = [a.phase, a.op, name, x.sbp, y.sbp].join('\n');
    const g = groups.get(key) || {op: a, name, x, y, count: 0, said: [a.why, b.why]};
    if (g.count) g.folded = true;
    g.count++;
    groups.set(key, g);
  }
  return {rows: [...groups.values()], only, moved: [...moved.values()]};
}

function differenceTable(ms) {
  const {rows, only, moved} = differences(ms);
  const count = rows.reduce((s, r) => s + r.count, 0);
  const note = only[0] || only[1] ? el('p', {class: 'quiet'}, `${plural(only[0], 'tensor')} in A alone, ${plural(only[1], 'tensor')} in B alone.`) : null;
  const places = moved.length ? table('tensors on other ranks: ' + moved.reduce((s, r) => s + r.count, 0), [
    ...LETTERS.map((letter, i) => ({head: letter, header: !i, cell: r => r.places[i]})),
    {head: 'tensors', number: true, cell: r => r.count}], moved, 10) : null;
  if (!rows.length) return [el('p', {}, 'Every tensor that both have is in the same signature.'), places, note];
  return [places, table('tensors in other signatures: ' + count, [
    {head: 'made by', header: true, cell: r => nameText(r.op.op + ' ' + (r.folded ? r.name : r.op.name))},
    {head: 'phase', cell: r => r.op.phase},
    {head: 'tensors', number: true, cell: r => el('span', {'data-differs': r.count}, r.count)},
    ...LETTERS.map((letter, i) => ({head: letter, cell: r => [chip((i ? r.y : r.x).sbp), r.said[i] === 'said' ? el('span', {class: 'quiet'}, 'said') : null]}))],
    rows, 30), note];
}

function comparedTraffic(ms) {
  const rows = new Map();
  ms.forEach((m, i) => {
    for (const b of m.talks) {
      const key = PURPOSES[b.purpose] + ', ' + b.collective + (b.dims.length ? ' over ' : ' ') + axisText(m, b);
      if (!rows.has(key)) rows.set(key, {name: key, calls: [0, 0], bytes: [0, 0]});
      rows.get(key).calls[i] += b.times || 1;
      rows.get(key).bytes[i] += b.bytes;
    }
  });
  const list = [...rows.values()].sort((a, b) => Math.max(...b.bytes) - Math.max(...a.bytes));
  const most = Math.max(1, ...list.flatMap(r => r.bytes));
  if (!list.length) return el('p', {}, 'Nothing is sent.');
  return table('communication', [
    {head: 'what', header: true, cell: r => r.name},
    ...LETTERS.map((letter, i) => ({head: letter, number: true, cell: r => r.calls[i] ?
      [bar(r.bytes[i], most), `${bytesText(r.bytes[i])} in ${r.calls[i]}`] : '–'})),
    {head: 'B to A', number: true, cell: r => sizeText(...r.bytes)}], list, 30);
}

function comparePage(data) {
  const ms = data.plans.map(makeModel);
  const panels = ms.map(details);
  panels.forEach(d => d.panel.classList.add('overlay'));
  const names = ms.map(m => fileName(m.plan.file));
  const select = i => what => {
    panels[1 - i].panel.classList.remove('shown');
    panels[i].select(what);
  };
  const beside = (id, title, view) => section(id, title, [el('div', {class: 'beside'}, ms.map((m, i) =>
    el('div', {}, [el('h3', {}, `${LETTERS[i]}: ${names[i]}`), ...view(m, select(i)).filter(Boolean)])))]);
  const main = el('main', {class: 'compare'}, [
    section('overview', 'A and B', [
      el('p', {class: 'quiet'}, `A is ${data.plans[0].file}, B is ${data.plans[1].file}. Green is less, red is more.`),
      comparedFigures(ms), comparedTraffic(ms)]),
    section('differences', 'What differs', differenceTable(ms)),
    beside('program', 'Program', program), beside('timeline', 'A step on the clock', timeline),
    beside('memory', 'Memory over the step', memoryView)]);
  return [header(names.join(' and '), 'two plans', [['overview', 'Figures'], ['differences', 'Differences'], ['program', 'Program'],
                                                    ['timeline', 'Timeline'], ['memory', 'Memory']]),
          el('div', {class: 'columns single wide'}, main), ...panels.map(d => d.panel)];
}
