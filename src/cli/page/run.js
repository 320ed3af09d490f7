// SPDX-License-Identifier: Apache-2.0
// The page of a run: losses, accuracy and throughput as they came, and what was planned beside what was
// measured.
'use strict';

// Points of at most two a column of pixels: the least and the most of each.
function thinned(points, columns) {
  if (points.length <= 2 * columns) return points;
  const out = [];
  const per = points.length / columns;
  for (let c = 0; c < columns; c++) {
    const some = points.slice(Math.floor(c * per), Math.floor((c + 1) * per)).filter(p => p.y !== null);
    if (!some.length) continue;
    const least = some.reduce((a, b) => b.y < a.y ? b : a);
    const most = some.reduce((a, b) => b.y > a.y ? b : a);
    out.push(...(least.x < most.x ? [least, most] : [most, least]));
  }
  return out;
}

function niceTicks(low, high, count) {
  const raw = (high - low) / count || 1;
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].map(k => k * power).find(k => k >= raw * 0.999);
  const out = [];
  for (let t = Math.ceil(low / step) * step; t <= high + step * 1e-6; t += step) out.push(Math.abs(t) < step * 1e-6 ? 0 : t);
  return out;
}

function shortNumber(y) {
  if (Math.abs(y) >= 1e4 && Math.abs(y) < 1e9) return scaled(y, ['', 'k', 'M']).replace(' ', '');
  return Math.abs(y) >= 1e9 || (y !== 0 && Math.abs(y) < 1e-3) ? y.toExponential(1) : String(+y.toPrecision(4));
}

// Lines over steps: {name, colour, points: [{x, y}], dots}; y null where there is no number.
function lineChart(title, lines, text = shortNumber, floor = null, ceiling = null) {
  const box = el('div', {class: 'chart', role: 'img', 'aria-label': title + ': ' + lines.map(l => {
    const all = l.points.filter(p => p.y !== null);
    return all.length ? `${l.name} from ${text(all[0].y)} to ${text(all[all.length - 1].y)}` : l.name;
  }).join('; ')});
  const H = 170;
  const all = lines.flatMap(l => l.points).filter(p => p.y !== null);
  if (!all.length) return el('p', {}, title + ': no number.');
  const span = list => list.reduce((a, v) => [Math.min(a[0], v), Math.max(a[1], v)], [Infinity, -Infinity]);
  const [x0, x1] = span(all.map(p => p.x));
  let [y0, y1] = span(all.map(p => p.y));
  if (floor !== null) y0 = Math.min(floor, y0);
  if (ceiling !== null) y1 = Math.max(ceiling, y1);
  if (y0 === y1) {
    y0 -= Math.abs(y0) * 0.1 || 1;
    y1 += Math.abs(y1) * 0.1 || 1;
  }
  const geometry = () => {
    const left = 58;
    const inner = Math.max(40, box.clientWidth - left - 10);
    return {left, inner, x: v => left + (x1 > x0 ? (v - x0) / (x1 - x0) : 0.5) * inner, y: v => 10 + H * (1 - (v - y0) / (y1 - y0))};
  };
  onWidth(box, () => {
    const g = geometry();
    const drawing = svg('svg', {width: box.clientWidth, height: H + 34, 'aria-hidden': 'true'});
    for (const t of niceTicks(y0, y1, 4)) drawing.append(
      svg('line', {x1: g.left, x2: g.left + g.inner, y1: g.y(t), y2: g.y(t), class: 'tick'}),
      svg('text', {x: g.left - 6, y: g.y(t) + 3, class: 'cut end'}, text(t)));
    for (const t of niceTicks(x0, x1, Math.max(2, g.inner / 110)).filter(Number.isInteger))
      drawing.append(svg('text', {x: g.x(t), y: H + 26, class: 'cut'}, t));
    for (const l of lines) {
      let pen = 'M';
      const path = thinned(l.points, Math.floor(g.inner)).map(p => {
        if (p.y === null) {
          pen = 'M';
          return '';
        }
        const d = `${pen}${g.x(p.x).toFixed(1)} ${g.y(p.y).toFixed(1)}`;
        pen = 'L';
        return d;
      }).join('');
      drawing.append(svg('path', {d: path, class: 'curve', style: 'stroke:' + l.colour, 'data-points': l.points.length}));
      if (l.dots || (l.points.length < 40 && l.dots === undefined)) for (const p of l.points)
        if (p.y !== null) drawing.append(svg('circle', {cx: g.x(p.x), cy: g.y(p.y), r: 2.6, style: 'fill:' + l.colour}));
    }
    box.replaceChildren(drawing);
  });
  box.addEventListener('mousemove', e => {
    const g = geometry();
    const at = x0 + (e.clientX - box.getBoundingClientRect().left - g.left) / g.inner * (x1 - x0);
    const near = l => l.points.reduce((a, p) => Math.abs(p.x - at) < Math.abs(a.x - at) ? p : a);
    const first = near(lines[0]);
    showTip(e, ['step ' + first.x, ...lines.map(l => `${l.name}: ${near(l).y === null ? 'not a number' : text(near(l).y)}`)]);
  });
  box.addEventListener('mouseleave', hideTip);
  return el('div', {class: 'curve-box'}, [el('h3', {}, title), lines.length > 1 ? el('ul', {class: 'legend'}, lines.map(l =>
    el('li', {}, [el('span', {class: 'line', style: 'background:' + l.colour}), l.name]))) : null, box]);
}

function runCurves(run) {
  const first = (run.after_step || 0) + 1;
  const points = list => (list || []).map((y, i) => ({x: first + i, y}));
  const evals = run.evaluations || [];
  const at = key => evals.map(e => ({x: e.step, y: e[key]}));
  const out = [];
  if (run.losses || evals.length) out.push(lineChart('loss', [
    run.losses ? {name: 'training', colour: 'var(--c-forward)', points: points(run.losses)} : null,
    evals.length ? {name: 'evaluation', colour: 'var(--c-backward)', points: at('loss'), dots: true} : null].filter(Boolean)));
  if (evals.length && 'accuracy' in evals[0]) out.push(lineChart('accuracy', [
    {name: 'first', colour: 'var(--c-update)', points: at('accuracy'), dots: true},
    {name: 'among five', colour: 'var(--c-start)', points: at('top5'), dots: true}], y => (100 * y).toFixed(0) + ' %', 0, 1));
  if (run.step_seconds && run.step_seconds.length && run.rows) out.push(lineChart('rows per second', [
    {name: 'rows/s', colour: 'var(--c-forward)', points: points(run.step_seconds.map(s => s > 0 ? run.rows / s : null))}], shortNumber, 0));
  if (run.step_seconds && run.step_seconds.length) out.push(lineChart('time of a step', [
    {name: 'measured', colour: 'var(--c-forward)', points: points(run.step_seconds)},
    {name: 'planned', colour: 'var(--critical)', dots: false, points: points(run.step_seconds.map(() => run.planned_step_s || run.estimated_step_s))}], secondsText, 0));
  return out;
}

function plannedTables(run) {
  const steps = Math.max(1, run.steps);
  const planned = run.planned_step_s === undefined ? 'estimated_step_s' : 'planned_step_s';
  const out = [table('a step', [
    {head: '', header: true, cell: r => r.name}, {head: 'planned', number: true, cell: r => r.planned}, {head: 'measured', number: true, cell: r => r.measured}],
    [{name: 'mean time, with feeding', planned: figure(planned, run[planned], secondsText(run[planned])), measured: secondsText(run.seconds / steps)},
     {name: 'fastest', planned: '', measured: figure('fastest_step_s', run.fastest_step_s, secondsText(run.fastest_step_s))}])];
  const kinds = run.step_by_kind || [];
  const most = Math.max(1e-12, ...kinds.flatMap(k => [k.planned_s, k.measured_s]));
  if (kinds.length) out.push(table('by kind of op', [
    {head: 'kind', header: true, cell: k => k.kind},
    {head: 'planned', number: true, cell: (k, i) => [bar(k.planned_s, most), figure(`step_by_kind.${i}.planned_s`, k.planned_s, secondsText(k.planned_s))]},
    {head: 'measured', number: true, cell: (k, i) => [bar(k.measured_s, most), figure(`step_by_kind.${i}.measured_s`, k.measured_s, secondsText(k.measured_s))]}], kinds, 20));
  if (run.collectives.length) out.push(table('communication of all ranks and steps', [
    {head: 'collective', header: true, cell: c => c.kind},
    {head: 'calls planned', number: true, cell: (c, i) => figure(`collectives.${i}.planned_calls`, c.planned_calls, c.planned_calls)},
    {head: 'made', number: true, cell: (c, i) => figure(`collectives.${i}.calls`, c.calls, c.calls)},
    {head: 'bytes planned', number: true, cell: (c, i) => figure(`collectives.${i}.planned_bytes`, c.planned_bytes, bytesText(c.planned_bytes))},
    {head: 'read', number: true, cell: (c, i) => figure(`collectives.${i}.bytes`, c.bytes, bytesText(c.bytes))}], run.collectives));
  return out;
}

function rankTable(run) {
  const most = Math.max(1e-12, ...run.per_rank.map(r => r.run_s));
  const times = key => ({number: true, cell: (r, i) => [bar(r[key], most), figure(`per_rank.${i}.${key}`, r[key], secondsText(r[key]))]});
  return table('ranks', [
    {head: 'rank', header: true, cell: r => r.rank},
    {head: 'in steps', ...times('run_s')}, {head: 'computing', ...times('compute_s')}, {head: 'communicating', ...times('communication_s')},
    {head: 'memory', number: true, cell: (r, i) => figure(`per_rank.${i}.memory.peak`, r.memory.peak, bytesText(r.memory.peak))}], run.per_rank, 16);
}

function runCards(run) {
  const last = run.losses && run.losses.length ? run.losses[run.losses.length - 1] : undefined;
  const evals = run.evaluations || [];
  const best = evals.length ? evals[evals.length - 1] : null;
  const memory = Math.max(...run.per_rank.map(r => r.memory.peak));
  return el('div', {class: 'cards'}, [
    last === undefined ? '' : card('the last loss', last === null ? 'not a number' : figure(`losses.${run.losses.length - 1}`, last, shortNumber(last)),
                                   run.losses[0] === null ? '' : 'from ' + shortNumber(run.losses[0])),
    best && 'accuracy' in best ? card('accuracy', figure(`evaluations.${evals.length - 1}.accuracy`, best.accuracy, (100 * best.accuracy).toFixed(2) + ' %'), `after step ${best.step}`) : '',
    run.rows_per_s === undefined ? '' : card('throughput', figure('rows_per_s', run.rows_per_s, shortNumber(run.rows_per_s) + ' rows/s'),
                                            `batches of ${run.rows}`),
    card('steps', figure('steps', run.steps, String(run.steps)), ['in ', figure('seconds', run.seconds, secondsText(run.seconds))]),
    card('memory of the neediest rank', bytesText(memory), plural(run.ranks, 'rank')),
    card('compiled in', figure('compile_s', run.compile_s, secondsText(run.compile_s)), '')].filter(Boolean));
}

function runPage(run) {
  const curves = runCurves(run);
  const end = run.failed ? `It failed in step ${run.failed.step}: ${run.failed.error}` :
    run.interrupted ? `It was interrupted by ${run.interrupted.signal} after ${run.interrupted.step} of ${run.interrupted.planned_steps} steps.` : '';
  const main = el('main', {class: 'run'}, [
    section('overview', 'The run', [end ? el('p', {class: 'worse', role: 'alert'}, end) : null, runCards(run)]),
    curves.length ? section('curves', 'Over the steps', [el('div', {class: 'two curves'}, curves)]) : '',
    run.steps ? section('planned', 'Planned and measured', plannedTables(run)) : '',
    section('ranks', 'By rank', [rankTable(run)])].filter(Boolean));
  return [header(fileName(run.file), plural(run.ranks, 'rank') + ' · ' + plural(run.steps, 'step'),
                 [['overview', 'Overview'], ...(curves.length ? [['curves', 'Curves']] : []),
                  ...(run.steps ? [['planned', 'Planned and measured']] : []), ['ranks', 'Ranks']]),
          el('div', {class: 'columns single'}, main)];
}
