// SPDX-License-Identifier: Apache-2.0
// Elements, numbers and texts. All text goes through textContent: a tensor's name is never markup.
'use strict';

const SVG = 'http://www.w3.org/2000/svg';

function fill(node, attributes, children) {
  for (const [key, value] of Object.entries(attributes || {})) {
    if (value === undefined || value === null || value === false) continue;
    if (key.startsWith('on')) node.addEventListener(key.slice(2), value);
    else node.setAttribute(key, value === true ? '' : value);
  }
  for (const child of [].concat(children === undefined ? [] : children))
    if (child !== null && child !== undefined)
      node.append(child.nodeType ? child : String(child));
  return node;
}
const el = (name, attributes, children) => fill(document.createElement(name), attributes, children);
const svg = (name, attributes, children) => fill(document.createElementNS(SVG, name), attributes, children);

function scaled(x, units) {
  let i = 0;
  let v = x;
  while (Math.abs(v) >= 999.5 && i + 1 < units.length) {
    v /= 1000;
    i++;
  }
  const digits = i === 0 && Number.isInteger(v) ? 0 : Math.abs(v) < 9.995 ? 2 : Math.abs(v) < 99.95 ? 1 : 0;
  return v.toFixed(digits) + ' ' + units[i];
}
const countText = x => scaled(x, ['', 'K', 'M', 'B']).trim();
const bytesText = x => scaled(x, ['B', 'KB', 'MB', 'GB', 'TB', 'PB', 'EB']);
function secondsText(s) {
  if (s === 0) return '0 s';
  return scaled(s * 1e9, ['ns', 'us', 'ms', 's']);
}
const percent = (part, whole) => (whole > 0 ? (100 * part / whole).toFixed(1) : '0.0') + ' %';
const plural = (n, word) => n + ' ' + word + (n === 1 ? '' : 's');

// A figure of the data: its path and its value stand beside the text, for tests and for copying.
function figure(path, value, text) {
  return el('span', {class: 'figure', 'data-figure': path, 'data-value': value}, text);
}

// A name that may break behind its dots.
const nameText = text => text.split(/(?<=[._])/).flatMap((word, i) => i ? [el('wbr'), word] : [word]);

// "0-3,8": numbers in ascending order, with a step where they have one.
function rangesText(ranks, most) {
  const out = [];
  for (let i = 0; i < ranks.length;) {
    const step = i + 1 < ranks.length ? ranks[i + 1] - ranks[i] : 1;
    let j = i;
    while (j + 1 < ranks.length && ranks[j + 1] - ranks[j] === step) j++;
    if (step === 1 && j > i) out.push(ranks[i] + '-' + ranks[j]);
    else if (j > i + 1) out.push(ranks[i] + ',' + ranks[i + 1] + '..' + ranks[j]);
    else {
      out.push(String(ranks[i]));
      j = i;
    }
    i = j + 1;
  }
  if (most && out.length > most) return out.slice(0, most).join(',') + ',...';
  return out.join(',');
}

// "ranks 0-3,8" of a class of ranks, in a few words.
function ranksText(x) {
  if (x.ranks.length <= 26) return (x.nranks > 1 ? 'ranks ' : 'rank ') + x.ranks;
  return `${x.nranks} ranks: ${x.ranks.slice(0, x.ranks.lastIndexOf(',', 22))}, …`;
}

// A table whose columns are {head, cell(row), number}; rows beyond `most` come at a button.
function table(caption, columns, rows, most = 60) {
  const body = el('tbody');
  const holder = el('div', {class: 'scroll', tabindex: 0, role: 'region', 'aria-label': caption});
  let shown = 0;
  const more = el('button', {type: 'button', class: 'more'});
  const show = () => {
    const until = Math.min(rows.length, shown + most);
    for (; shown < until; shown++) {
      const row = rows[shown];
      body.append(el('tr', {}, columns.map(c => {
        const cell = c.cell(row, shown);
        return el(c.header ? 'th' : 'td', {class: c.number ? 'number' : null, scope: c.header ? 'row' : null},
                  cell);
      })));
    }
    more.hidden = shown >= rows.length;
    more.textContent = 'show ' + Math.min(most, rows.length - shown) + ' more of ' + (rows.length - shown);
  };
  more.addEventListener('click', show);
  show();
  holder.append(el('table', {}, [
    el('caption', {}, caption),
    el('thead', {}, el('tr', {}, columns.map(c => el('th', {scope: 'col', class: c.number ? 'number' : null}, c.head)))),
    body]));
  return el('div', {}, [holder, more]);
}

const bar = (part, whole) =>
  el('span', {class: 'bar', 'aria-hidden': 'true'}, el('span', {style: 'width:' + (whole > 0 ? 100 * part / whole : 0).toFixed(2) + '%'}));

// Called when all of the page is in the document, and has its width.
const onceShown = [];

// Draws once an element has its width, and whenever that changes. A probe beside it is observed, whose
// height does not change by what is drawn.
function onWidth(node, draw) {
  let width = 0;
  const drawAnew = () => {
    if (node.clientWidth === width) return;
    width = node.clientWidth;
    draw();
  };
  onceShown.push(() => {
    const probe = el('div');
    node.before(probe);
    drawAnew();
    new ResizeObserver(drawAnew).observe(probe);
  });
}

// --- what the mouse is on -------------------------------------------------------------------------
const tip = el('div', {class: 'tip', role: 'tooltip', hidden: true});
function showTip(event, lines) {
  tip.replaceChildren(...lines.filter(Boolean).map((line, i) => el(i ? 'div' : 'strong', {}, line)));
  tip.hidden = false;
  const w = tip.offsetWidth;
  const h = tip.offsetHeight;
  tip.style.left = Math.max(4, Math.min(event.clientX + 14, innerWidth - w - 8)) + 'px';
  tip.style.top = (event.clientY + h + 24 > innerHeight ? Math.max(4, event.clientY - h - 12) : event.clientY + 16) + 'px';
}
const hideTip = () => { tip.hidden = true; };
