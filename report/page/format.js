// Numbers and elements. Text of a report is only ever set as text.
const counted = new Intl.NumberFormat('en-US', { maximumSignificantDigits: 4 });

function scaled(value, units, step) {
  let at = 0;
  while (Math.abs(value) >= step && at < units.length - 1) {
    value /= step;
    at += 1;
  }
  return `${value.toPrecision(Math.abs(value) >= 100 ? Math.max(3, Math.trunc(Math.log10(Math.abs(value))) + 1) : 3)} ${units[at]}`.trim();
}

const bytes = (value) => scaled(value, ['B', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB', 'EiB'], 1024);
const rate = (value) => `${scaled(value, ['B', 'kB', 'MB', 'GB', 'TB', 'PB'], 1000)}/s`;
const count = (value) => (Math.abs(value) < 1e6 ? counted.format(value) : scaled(value, ['', 'k', 'M', 'B', 'T'], 1000));
// What is counted one by one has all its digits: "131,072", "1 node", "1,024 nodes".
const exact = (value) => value.toLocaleString('en-US');
const numbered = (value, what) => `${exact(value)} ${what}${value === 1 ? '' : 's'}`;
// On an axis: without zeros behind the point.
const plain = (text) => text.replace(/(\.\d*?)0+(?=[ %])/, '$1').replace(/\.(?=[ %])/, '');
const energy = (joules) => (joules < 3.6e9 ? `${counted.format(Number((joules / 3.6e6).toPrecision(3)))} kWh` : `${counted.format(joules / 3.6e9)} MWh`);
const percent = (share, digits = 1) => `${(100 * share).toFixed(digits)}%`;
const usd = (value) => (value >= 1e6 ? `${scaled(value, ['', 'k', 'M', 'B', 'T'], 1000)} USD` : `${new Intl.NumberFormat('en-US', value < 100 ? { maximumSignificantDigits: 3 } : { maximumFractionDigits: 0 }).format(value)} USD`);
const signed = (share) => `${share >= 0 ? '+' : '−'}${Math.abs(100 * share).toFixed(1)}%`;

function seconds(value) {
  const size = Math.abs(value);
  if (size === 0) return '0 s';
  // What rounds up to the next unit is said in it.
  if (size < 0.9995e-3) return `${(value * 1e6).toPrecision(3)} µs`;
  if (size < 0.9995) return `${(value * 1e3).toPrecision(3)} ms`;
  if (size < 600) return `${value.toPrecision(size < 100 ? 4 : 3)} s`;
  if (size < 2 * 3600) return `${(value / 60).toPrecision(3)} min`;
  if (size < 2 * 86400) return `${(value / 3600).toPrecision(3)} h`;
  return `${counted.format(Number((value / 86400).toPrecision(size < 100 * 86400 ? 3 : 4)))} days`;
}

const partNames = {
  compute: 'compute', recompute: 'recomputation', tensor_comm: 'tensor-parallel communication',
  data_comm: 'data-parallel communication', pipeline_comm: 'pipeline communication',
  expert_comm: 'expert communication', context_comm: 'context communication', bubble: 'bubble (waiting)',
  optimizer: 'optimizer', input: 'input', other: 'other', forward: 'forward', backward: 'backward',
};
const partName = (part) => partNames[part] || part;

function el(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === undefined || value === null || value === false) continue;
    if (name === 'class') element.className = value;
    else if (name.startsWith('on')) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? '' : value);
  }
  for (const child of children.flat()) {
    if (child !== undefined && child !== null && child !== false) element.append(child);
  }
  return element;
}

// In ECharts' tooltips, which are HTML.
const escaped = (text) => String(text).replace(/[&<>"']/g, (c) => `&#${c.charCodeAt(0)};`);

// A paragraph of several sentences as a list: each says one thing.
function sentences(text) {
  const list = text.split(/(?<=[.!?]) (?=[A-Z0-9])/);
  return list.length < 3 ? el('p', {}, text) : el('ul', { class: 'sentences' }, list.map((one) => el('li', {}, one)));
}

let ids = 0;
const newId = (what) => `${what}-${ids += 1}`;

// head: names, those of columns of words begin with "~". A table with a column of words besides its first stands, where the page is
// narrow, as a paragraph a row (roles: it stays a table for whoever hears it).
function tableOf(head, rows, { chosen = -1, label = 'Table' } = {}) {
  const words = head.map((name) => name.startsWith('~')), names = head.map((name) => name.replace(/^~/, ''));
  const stacks = words.some((one, i) => one && i > 0);
  const table = el('table', { class: stacks && 'stacks', role: stacks && 'table' },
    el('thead', { role: stacks && 'rowgroup' }, el('tr', { role: stacks && 'row' }, names.map((name, i) => el('th', { scope: 'col', role: stacks && 'columnheader', class: words[i] && 'words' }, name)))),
    el('tbody', { role: stacks && 'rowgroup' }, rows.map((row, at) => el('tr', { class: at === chosen && 'chosen', role: stacks && 'row' }, row.map((cell, i) =>
      el(i === 0 ? 'th' : 'td', { scope: i === 0 && 'row', role: stacks && (i === 0 ? 'rowheader' : 'cell'), class: words[i] && 'words', 'data-name': stacks && i > 0 && names[i] }, String(cell)))))));
  return el('div', { class: rows.length > 30 ? 'scroll tall' : 'scroll', tabindex: '0', role: 'group', 'aria-label': label }, table);
}

function details(summary, content) {
  return el('details', {}, el('summary', {}, summary), content);
}
