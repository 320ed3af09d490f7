// SPDX-License-Identifier: Apache-2.0
// The page of a plan.
'use strict';

const section = (id, title, content) =>
  el('section', {id, 'aria-labelledby': id + '-title'}, [el('h2', {id: id + '-title'}, title), ...content.filter(Boolean)]);

function opTables(m, select) {
  const filter = el('input', {type: 'search', placeholder: 'name, op or signature', 'aria-label': 'show only rows with this text'});
  const holder = el('div');
  const text = row => [rowTitle(row), ...row.in.concat(row.out).map(v => m.value(v).sbp), row.reason || '', sourceText(row)].join(' ').toLowerCase();
  const sbps = (row, list) => list.slice(0, 4).map(v => chip(m.value(v).sbp)).concat(list.length > 4 ? ` and ${list.length - 4} more` : []);
  const show = () => {
    const want = filter.value.toLowerCase();
    const keep = row => !want || text(row).includes(want);
    holder.replaceChildren(
      table('conversions', [
        {head: 'conversion', header: true, cell: b => el('button', {type: 'button', class: 'link', onclick: () => select({row: b})}, nameText(rowTitle(b)))},
        {head: 'from', cell: b => sbps(b, b.in.slice(0, 1))}, {head: 'to', cell: b => sbps(b, b.out.slice(0, 1))},
        {head: 'because', cell: b => nameText(b.reason)},
        {head: 'bytes', number: true, cell: b => figure(`rows.${b.id}.bytes`, b.bytes, bytesText(b.bytes))},
        {head: 'time', number: true, cell: b => figure(`rows.${b.id}.cost_s`, b.cost_s, secondsText(b.cost_s))}], m.plan.boxing.filter(keep), 25),
      table('inputs, variables and ops', [
        {head: 'op', header: true, cell: o => el('button', {type: 'button', class: 'link', onclick: () => select({row: o})}, nameText(rowTitle(o)))},
        {head: 'phase', cell: o => o.phase},
        {head: 'reads', cell: o => sbps(o, o.in)}, {head: 'makes', cell: o => sbps(o, o.out)},
        {head: 'declared at', cell: sourceText},
        {head: 'time', number: true, cell: o => figure(`rows.${o.id}.cost_s`, o.cost_s, secondsText(o.cost_s))}], m.plan.ops.filter(keep), 25));
  };
  filter.addEventListener('input', show);
  show();
  return [el('div', {class: 'tools'}, filter), holder];
}

function modelNote(m) {
  const x = m.plan.model;
  return el('p', {class: 'quiet'}, [
    'Times are estimates by these figures: ', ...x.links.map((l, i) => `${linkText(m, i + 1)} ${l.ranks ? `within ${l.ranks} ranks` : 'among all ranks'}: hand-shake ` +
      `${secondsText(l.latency_s)}, ${bytesText(l.bytes_per_s)}/s; `),
    `own memory ${bytesText(x.local_bytes_per_s)}/s, ${(x.flops_per_s / 1e9).toPrecision(3)} GFLOP/s in ${x.dtype}, kernel start ${secondsText(x.kernel_s)}. ${x.figures}.`]);
}

function planSections(m, select, prefix = '') {
  return [
    section(prefix + 'overview', 'Overview', overview(m)),
    section(prefix + 'program', 'Program', program(m, select)),
    section(prefix + 'timeline', 'A step on the clock', timeline(m, select)),
    section(prefix + 'memory', 'Memory over the step', memoryView(m, select)),
    section(prefix + 'traffic', 'Communication', traffic(m)),
    section(prefix + 'rows', 'Every op and conversion', opTables(m, select)),
    modelNote(m)];
}

const header = (title, note, links) => el('header', {}, [
  el('div', {class: 'title'}, [el('h1', {}, title), el('p', {}, note)]),
  el('nav', {'aria-label': 'sections'}, links.map(([id, text]) => el('a', {href: '#' + id}, text)))]);

const PLAN_LINKS = [['overview', 'Overview'], ['program', 'Program'], ['timeline', 'Timeline'], ['memory', 'Memory'],
                    ['traffic', 'Communication'], ['rows', 'Ops']];

const fileName = path => path.split('/').pop();

function planPage(plan) {
  const m = makeModel(plan);
  const d = details(m);
  const main = el('main', {class: 'plan'}, planSections(m, d.select));
  const chosen = /^#row-(\d+)$/.exec(location.hash); // page.html#row-12: opens with that op or conversion
  d.select(chosen && m.rows[chosen[1]] ? {row: m.rows[chosen[1]]} : {node: m.root}, !chosen);
  const meshes = plan.placements.filter(p => p.ranks.length).map(placementText);
  return [header(fileName(plan.file), [plural(plan.ranks, 'rank'), ' · ', meshes.slice(0, 3).join(', '), meshes.length > 3 ? ', …' : ''], PLAN_LINKS),
          el('div', {class: 'columns'}, [main, d.panel])];
}
