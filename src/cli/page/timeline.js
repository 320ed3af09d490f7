// SPDX-License-Identifier: Apache-2.0
// A step on a clock: per group of ranks what it computes, and each link's calls.
'use strict';

function tracksOf(m) {
  const t = m.plan.timeline;
  const s = t.spans;
  const critical = new Set(s.critical);
  const tracks = new Map();
  const laneOrder = {compute: 0, critical: 1, bulk: 2};
  for (let i = 0; i < s.op.length; i++) {
    const row = m.rows[s.op[i]];
    const lane = row.communicates ? row.lane : 'compute';
    const key = [s.group[i], row.communicates ? row.link : 0, laneOrder[lane]].join();
    if (!tracks.has(key))
      tracks.set(key, {group: s.group[i], link: row.communicates ? row.link : 0, lane, spans: [], busy_s: 0});
    const track = tracks.get(key);
    track.spans.push({row, start: s.start_s[i], end: s.end_s[i], critical: critical.has(i)});
    track.busy_s += s.end_s[i] - s.start_s[i];
  }
  return [...tracks.values()].sort((a, b) => a.group - b.group || a.link - b.link || laneOrder[a.lane] - laneOrder[b.lane]);
}

const spanColour = row => row.collective ? (row.communicates ? purposeColour(row.purpose) : 'var(--c-memory)') :
  `var(--c-${row.phase})`;

// Spans that would be thinner than a pixel are drawn as one with their neighbours.
function drawTrack(track, y, h, from, to, left, width) {
  const scale = width / (to - from);
  const group = svg('g', {});
  let run = null;
  const flush = () => {
    if (!run) return;
    group.append(svg('rect', {x: run.x.toFixed(2), y, width: Math.max(run.end - run.x, 0.4).toFixed(2), height: h,
                              style: 'fill:' + run.colour}));
    if (run.critical) group.append(svg('rect', {x: run.x.toFixed(2), y: y + h, width: Math.max(run.end - run.x, 0.6).toFixed(2), height: 3, class: 'critical'}));
    run = null;
  };
  for (const s of track.spans) {
    if (s.end < from || s.start > to || s.end === s.start) continue;
    const x = left + Math.max(0, (s.start - from) * scale);
    const end = left + Math.min(width, (s.end - from) * scale);
    const colour = spanColour(s.row);
    const wide = end - x > 2.5;
    if (run && !wide && run.thin && x - run.end < 0.7 && run.critical === s.critical) {
      if (end - x > run.widest) {
        run.colour = colour;
        run.widest = end - x;
      }
      run.end = Math.max(end, run.end);
      if (run.end - run.x > 2) flush();
      continue;
    }
    flush();
    run = {x, end: wide ? end - 0.4 : end, colour, critical: s.critical, thin: !wide, widest: end - x};
  }
  flush();
  return group;
}

function ticks(from, to, width) {
  const raw = (to - from) / Math.max(2, Math.floor(width / 110));
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].map(k => k * power).find(k => k >= raw);
  const out = [];
  for (let t = Math.ceil(from / step) * step; t <= to * (1 + 1e-9); t += step) out.push(t);
  return out;
}

function timeline(m, select) {
  const t = m.plan.timeline;
  const tracks = tracksOf(m);
  const end = t.end_s || 1e-9;
  const view = {from: 0, to: end};
  const most = 24;
  const shown = tracks.slice(0, most);
  const box = el('div', {class: 'chart', tabindex: 0, role: 'application', 'aria-label':
    'timeline of a step, ' + secondsText(t.end_s) + '; plus and minus zoom, arrows move, 0 shows all'});
  const H = 22;
  const narrow = () => box.clientWidth < 600;
  const pitch = () => H + (narrow() ? 22 : 14);
  const draw = () => {
    const width = box.clientWidth || 800;
    const left = narrow() ? 6 : 168;
    const inner = width - left - 8;
    const drawing = svg('svg', {width, height: 34 + shown.length * pitch() + 4, role: 'img', 'aria-hidden': 'true'});
    for (const x of ticks(view.from, view.to, inner)) {
      const at = left + (x - view.from) / (view.to - view.from) * inner;
      drawing.append(svg('line', {x1: at, x2: at, y1: 18, y2: 30 + shown.length * pitch(), class: 'tick'}),
                     svg('text', {x: at, y: 12, class: at - left < 14 ? 'cut start' : left + inner - at < 20 ? 'cut end' : 'cut'}, secondsText(x)));
    }
    shown.forEach((track, i) => {
      const y = (narrow() ? 34 : 26) + i * pitch();
      const group = t.groups[track.group];
      const name = (t.groups.length > 1 ? 'ranks ' + group.ranks.slice(0, 14) + ' ' : '') +
                   (track.link ? `${linkText(m, track.link)}${track.lane === 'bulk' ? ' bulk' : ''}` : 'compute');
      if (!narrow()) {
        drawing.append(svg('text', {x: left - 8, y: y + 10, class: 'track'}, name),
                       svg('text', {x: left - 8, y: y + 21, class: 'cut end'}, secondsText(track.busy_s) + ', ' + percent(track.busy_s, end)));
      } else {
        drawing.append(svg('text', {x: left, y: y - 2, class: 'cut start'}, name + ' ' + secondsText(track.busy_s)));
      }
      drawing.append(svg('rect', {x: left, y, width: inner, height: H, class: 'rail'}), drawTrack(track, y, H, view.from, view.to, left, inner));
    });
    box.replaceChildren(drawing);
  };
  const find = event => {
    const area = box.getBoundingClientRect();
    const left = narrow() ? 6 : 168;
    const inner = box.clientWidth - left - 8;
    const i = Math.floor((event.clientY - area.top - 22) / pitch());
    const at = view.from + (event.clientX - area.left - left) / inner * (view.to - view.from);
    if (!shown[i] || at < view.from || at > view.to) return null;
    const spans = shown[i].spans;
    let low = 0;
    let high = spans.length - 1;
    while (low < high) { // the last span that starts before `at`
      const middle = (low + high + 1) >> 1;
      if (spans[middle].start <= at) low = middle;
      else high = middle - 1;
    }
    while (low > 0 && spans[low].end === spans[low].start) low--;
    return spans[low] && spans[low].start <= at && spans[low].end >= at ? spans[low] : null;
  };
  box.addEventListener('mousemove', e => {
    const s = find(e);
    if (!s) return hideTip();
    showTip(e, [rowTitle(s.row), secondsText(s.end - s.start) + ' from ' + secondsText(s.start),
                s.row.reason || s.row.phase, s.critical ? 'on the longest chain' : '']);
  });
  box.addEventListener('mouseleave', hideTip);
  box.addEventListener('click', e => {
    const s = find(e);
    if (s) select({row: s.row});
  });
  const zoom = (factor, move) => {
    const span = Math.min(end, Math.max(end / 4000, (view.to - view.from) * factor));
    const middle = (view.from + view.to) / 2 + move * (view.to - view.from);
    view.from = Math.max(0, Math.min(end - span, middle - span / 2));
    view.to = view.from + span;
    draw();
  };
  const keys = {'+': [0.5, 0], '=': [0.5, 0], '-': [2, 0], 0: [1e9, 0], ArrowLeft: [1, -0.25], ArrowRight: [1, 0.25]};
  box.addEventListener('keydown', e => {
    if (!keys[e.key]) return;
    zoom(...keys[e.key]);
    e.preventDefault();
  });
  onWidth(box, draw);
  const tool = (text, label, factor, move) => el('button', {type: 'button', 'aria-label': label, onclick: () => zoom(factor, move)}, text);
  const kinds = [['forward', 'var(--c-forward)'], ['backward', 'var(--c-backward)'], ['update', 'var(--c-update)']];
  return [
    el('div', {class: 'tools'}, [tool('+', 'zoom in', 0.5, 0), tool('−', 'zoom out', 2, 0), tool('◂', 'earlier', 1, -0.25),
                                 tool('▸', 'later', 1, 0.25), tool('all', 'the whole step', 1e9, 0)]),
    el('ul', {class: 'legend'}, [...kinds.map(([name, colour]) => el('li', {}, [el('span', {class: 'dot', style: 'background:' + colour}), name])),
      ...Object.keys(PURPOSES).filter(p => m.talks.some(b => b.purpose === p)).map(p => el('li', {}, [
        el('span', {class: 'dot', style: 'background:' + purposeColour(p)}), PURPOSES[p]])),
      el('li', {}, [el('span', {class: 'line critical'}), 'the longest chain'])]),
    box,
    tracks.length > most ? el('p', {class: 'quiet'}, `and ${tracks.length - most} more rows`) : null,
    table('groups of ranks', [
      {head: 'ranks', header: true, cell: g => ranksText(g) + (g.nranks > 1 && g.ranks.length <= 26 ? ` (${g.nranks})` : '')},
      {head: 'computes', number: true, cell: (g, i) => figure(`timeline.groups.${i}.compute_s`, g.compute_s, secondsText(g.compute_s))},
      {head: 'waits', number: true, cell: g => secondsText(Math.max(0, t.end_s - g.compute_s)) + ', ' + percent(Math.max(0, t.end_s - g.compute_s), t.end_s)},
      {head: 'done at', number: true, cell: (g, i) => figure(`timeline.groups.${i}.end_s`, g.end_s, secondsText(g.end_s))}], t.groups, 12)];
}

// --- memory over the step -------------------------------------------------------------------------
const ALIVE = ['activations', 'parameters', 'gradients', 'communication'];

// Bytes by kind at each place of the order, for a class of ranks.
function aliveOver(m, which) {
  const n = m.plan.order.op.length;
  const by = Object.fromEntries(ALIVE.map(k => [k, new Float64Array(n + 1)]));
  for (const v of m.plan.values) {
    if (!v.alive || v.alive[0] < 0 || !by[v.memory]) continue;
    by[v.memory][v.alive[0]] += v.bytes[which];
    by[v.memory][v.alive[1] + 1] -= v.bytes[which];
  }
  for (const k of ALIVE) for (let i = 1; i <= n; i++) by[k][i] += by[k][i - 1];
  return by;
}

function memoryView(m, select) {
  const n = m.plan.order.op.length;
  if (!n || !m.plan.memory.length) return [el('p', {}, 'Nothing is held.')];
  const state = {which: 0, at: 0};
  const chart = el('div', {class: 'chart', tabindex: 0, role: 'application', 'aria-label': 'memory over a step; arrows choose a moment'});
  const holder = el('div');
  const H = 190;
  let by;
  const draw = () => {
    const width = chart.clientWidth || 800;
    const left = 62;
    const inner = width - left - 8;
    const mem = m.plan.memory[state.which];
    const lasting = k => mem[k] - (by[k] && mem.peak >= 0 ? by[k][mem.peak] : 0);
    const base = ['parameters', 'masters', 'buffers', 'optimizer', 'inputs_outputs'].filter(k => lasting(k) > 0);
    const fixed = base.reduce((s, k) => s + lasting(k), 0);
    let most = 1;
    for (let i = 0; i < n; i++) most = Math.max(most, fixed + ALIVE.reduce((s, k) => s + by[k][i], 0));
    const y = v => 8 + H * (1 - v / most);
    const drawing = svg('svg', {width, height: H + 30, 'aria-hidden': 'true'});
    for (let i = 0; i <= 4; i++) drawing.append(
      svg('line', {x1: left, x2: left + inner, y1: y(most * i / 4), y2: y(most * i / 4), class: 'tick'}),
      svg('text', {x: left - 6, y: y(most * i / 4) + 3, class: 'cut end'}, bytesText(Math.round(most * i / 4))));
    let below = 0;
    for (const k of base) {
      drawing.append(svg('rect', {x: left, width: inner, y: y(below + lasting(k)), height: y(below) - y(below + lasting(k)),
                                  style: 'fill:' + MEMORY.find(x => x[0] === k)[2]}));
      below += lasting(k);
    }
    const columns = Math.min(n, Math.max(1, Math.floor(inner)));
    const floor = new Float64Array(columns).fill(fixed);
    for (const k of ALIVE) { // of each column of pixels, the place where most is alive
      const top = [];
      const bottom = [];
      for (let c = 0; c < columns; c++) {
        const x0 = left + inner * c / columns;
        const x1 = left + inner * (c + 1) / columns;
        const i = placeOfColumn(c, columns);
        const v = floor[c] + by[k][i];
        top.push(`${x0.toFixed(1)} ${y(v).toFixed(1)}L${x1.toFixed(1)} ${y(v).toFixed(1)}`);
        bottom.push(`${x1.toFixed(1)} ${y(floor[c]).toFixed(1)}L${x0.toFixed(1)} ${y(floor[c]).toFixed(1)}`);
        floor[c] = v;
      }
      drawing.append(svg('path', {d: 'M' + top.join('L') + 'L' + bottom.reverse().join('L') + 'Z', style: 'fill:' + MEMORY.find(x => x[0] === k)[2]}));
    }
    const x = left + inner * (state.at + 0.5) / n;
    drawing.append(svg('line', {x1: x, x2: x, y1: 4, y2: H + 12, class: 'cursor'}),
                   svg('text', {x: Math.min(Math.max(x, left + 30), left + inner - 30), y: H + 24, class: 'cut'},
                       state.at === mem.peak ? 'the peak' : 'here'));
    chart.replaceChildren(drawing);
    chart.dataset.most = most;
  };
  const placeOfColumn = (c, columns) => {
    const from = Math.floor(n * c / columns);
    const to = Math.max(from + 1, Math.floor(n * (c + 1) / columns));
    let best = from;
    let sum = -1;
    for (let i = from; i < to; i++) {
      const s = ALIVE.reduce((all, k) => all + by[k][i], 0);
      if (s > sum) {
        sum = s;
        best = i;
      }
    }
    return best;
  };
  const list = () => {
    const at = state.at;
    const row = m.rows[m.plan.order.op[at]];
    const alive = m.plan.values.filter(v => v.alive && v.alive[0] <= at && at <= v.alive[1] && v.alive[0] >= 0 && v.bytes[state.which] > 0)
      .sort((a, b) => b.bytes[state.which] - a.bytes[state.which]);
    const sum = alive.reduce((s, v) => s + v.bytes[state.which], 0);
    const maker = v => m.rows[m.maker.get(v.id)];
    holder.replaceChildren(
      el('p', {}, [state.at === m.plan.memory[state.which].peak ? 'At the peak' : 'At this moment', `, place ${at + 1} of ${n}, `,
                   el('button', {type: 'button', class: 'link', onclick: () => select({row})}, nameText(rowTitle(row))),
                   `: ${plural(alive.length, 'value')} of the plan, `, figure('alive', sum, bytesText(sum)), '.']),
      table('what is alive then', [
        {head: 'made by', header: true, cell: v => maker(v) ? el('button', {type: 'button', class: 'link', onclick: () => select({row: maker(v)})}, nameText(rowTitle(maker(v)))) : v.name},
        {head: 'for', cell: v => v.memory},
        {head: 'shape', cell: v => v.dtype + '[' + v.shape.join(', ') + ']'},
        {head: 'signature', cell: v => chip(v.sbp)},
        {head: 'bytes', number: true, cell: v => [bar(v.bytes[state.which], alive[0].bytes[state.which]), bytesText(v.bytes[state.which])]}], alive, 10));
  };
  const choose = which => {
    state.which = which;
    by = aliveOver(m, which);
    state.at = Math.max(0, m.plan.memory[which].peak);
    draw();
    list();
  };
  const moveTo = at => {
    state.at = Math.min(n - 1, Math.max(0, at));
    draw();
    list();
  };
  chart.addEventListener('click', e => {
    const area = chart.getBoundingClientRect();
    moveTo(Math.floor((e.clientX - area.left - 62) / (chart.clientWidth - 70) * n));
  });
  chart.addEventListener('keydown', e => {
    const step = {ArrowLeft: -1, ArrowRight: 1}[e.key];
    if (!step) return;
    moveTo(state.at + step * (e.shiftKey ? Math.ceil(n / 50) : 1));
    e.preventDefault();
  });

  const picker = m.plan.memory.length > 1 ? el('label', {}, ['memory of ', el('select', {onchange: e => choose(+e.target.value)},
    m.plan.memory.map((x, i) => el('option', {value: i}, `${ranksText(x)} (${bytesText(x.total)})`)))]) : null;
  const used = MEMORY.filter(([key]) => !['scratch', 'other'].includes(key) && m.plan.memory.some(x => x[key] > 0));
  onceShown.push(() => choose(0));
  onWidth(chart, draw);
  return [el('div', {class: 'tools'}, picker),
          el('ul', {class: 'legend'}, used.map(([, name, colour]) => el('li', {}, [el('span', {class: 'dot', style: 'background:' + colour}), name]))),
          chart, holder];
}
