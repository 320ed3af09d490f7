// Filters the index by what is typed: each word must stand in a call's name, its section, its first sentence or
// PyTorch's name of it. Down, up and Enter choose; "/" begins, Escape ends.
'use strict';
const box = document.getElementById('search');
const found = document.getElementById('found');
const count = document.getElementById('count');
const index = document.getElementById('index');
const rows = JSON.parse(document.getElementById('rows').textContent);
let at = -1;

function rank(row, words) {
  const name = row[0].toLowerCase(), all = row.join(' ').toLowerCase();
  if (!words.every((w) => all.includes(w))) return -1;
  const bare = name.replace(/^tsr_/, ''), first = words[0].replace(/^tsr_/, '');
  if (bare === first) return 0;
  if (bare.startsWith(first)) return 1;
  return name.includes(first) ? 2 : 3;
}

function mark(to) {
  const links = found.querySelectorAll('a');
  links.forEach((a) => a.classList.remove('at'));
  at = Math.max(-1, Math.min(to, links.length - 1));
  if (at >= 0) {
    links[at].classList.add('at');
    links[at].scrollIntoView({block: 'nearest'});
  }
}

function filter() {
  const words = box.value.toLowerCase().split(/\s+/).filter(Boolean);
  found.replaceChildren();
  index.hidden = words.length > 0;
  count.textContent = '';
  if (!words.length) return;
  const hits = rows.map((row) => [rank(row, words), row]).filter((h) => h[0] >= 0);
  hits.sort((a, b) => a[0] - b[0] || a[1][0].localeCompare(b[1][0]));
  for (const [, row] of hits.slice(0, 60)) {
    const item = document.createElement('li'), link = document.createElement('a'), more = document.createElement('span');
    link.href = '#' + row[0];
    link.textContent = row[0];
    more.textContent = row[1];
    link.append(more);
    item.append(link);
    found.append(item);
  }
  count.textContent = hits.length > 60 ? `60 of ${hits.length}` : `${hits.length} found`;
  mark(0);
}

box.addEventListener('input', filter);
box.addEventListener('keydown', (e) => {
  if (e.key === 'ArrowDown') { mark(at + 1); e.preventDefault(); }
  if (e.key === 'ArrowUp') { mark(at - 1); e.preventDefault(); }
  if (e.key === 'Enter' && at >= 0) {
    location.hash = found.querySelectorAll('a')[at].getAttribute('href');
    e.preventDefault();
  }
  if (e.key === 'Escape') { box.value = ''; filter(); }
});
document.addEventListener('keydown', (e) => {
  if (e.key === '/' && document.activeElement !== box) { box.focus(); box.select(); e.preventDefault(); }
});
