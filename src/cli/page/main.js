// SPDX-License-Identifier: Apache-2.0
// Reads the data that the page carries, and shows it.
'use strict';

async function readData() {
  const node = document.getElementById('data');
  if (node.type === 'application/json') return JSON.parse(node.textContent);
  const bytes = Uint8Array.from(atob(node.textContent.trim()), c => c.charCodeAt(0));
  const source = new ReadableStream({
    start(controller) {
      controller.enqueue(bytes);
      controller.close();
    }});
  const reader = source.pipeThrough(new DecompressionStream('deflate')).pipeThrough(new TextDecoderStream()).getReader();
  const parts = [];
  for (let r = await reader.read(); !r.done; r = await reader.read()) parts.push(r.value);
  return JSON.parse(parts.join(''));
}

const PAGES = {plan: planPage, box: boxPage, compare: comparePage, run: runPage};

async function main() {
  const data = await readData();
  document.body.append(...PAGES[document.body.dataset.kind](data), tip);
  document.getElementById('wait').remove();
  for (const draw of onceShown) draw();
  document.body.dataset.ready = Math.round(performance.now());
  if (document.getElementById(location.hash.slice(1))) location.replace(location.hash); // its target is there only now
}

main().catch(error => {
  document.getElementById('wait').textContent = 'This page could not be shown: ' + error.message;
  throw error;
});
