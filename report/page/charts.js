// Charts: made by ECharts, in the colours of the page's theme, reached by keyboard, each beside its numbers.
const allCharts = [];

const palettes = {
  light: {
    ink: '#16202c', soft: '#526070', line: '#d5dbe3', card: '#ffffff', accent: '#0b5cad',
    series: ['#0b6bcb', '#d1660a', '#1f8a4c', '#8a4fc7', '#c2376b', '#00838f', '#7a6a00', '#5c6b7a'],
    parts: {
      compute: '#2f7fd1', recompute: '#7fb4e8', optimizer: '#8a5bc9', tensor_comm: '#e07b16', data_comm: '#c8352b',
      pipeline_comm: '#d9a400', expert_comm: '#c2378f', context_comm: '#b0643a', bubble: '#c3cad3', input: '#1f9a8a',
      other: '#8b97a5', forward: '#2f7fd1', backward: '#1c5793',
    },
  },
  dark: {
    ink: '#e8edf3', soft: '#a5b3c2', line: '#33414f', card: '#18212b', accent: '#7db8f2',
    series: ['#6fb3f5', '#f2a154', '#6fcf8e', '#c19af0', '#f088b1', '#5fd0dc', '#d6c453', '#a5b3c2'],
    parts: {
      compute: '#4c9be8', recompute: '#2d659e', optimizer: '#b08ae6', tensor_comm: '#f39a3d', data_comm: '#f0645a',
      pipeline_comm: '#f0c53a', expert_comm: '#ec6fbe', context_comm: '#d08a5c', bubble: '#46535f', input: '#46c9b8',
      other: '#8593a1', forward: '#4c9be8', backward: '#8cc1f5',
    },
  },
};

let themeName = 'light';
const palette = () => palettes[themeName];
const partColour = (part) => palette().parts[part] || palette().parts.other;

function say(text) {
  document.getElementById('said').textContent = text;
}

// Letters of charts grow with those of the page (projectors).
const letters = (size) => Math.round(size * parseFloat(getComputedStyle(document.documentElement).fontSize) / 16);

function axis(more) {
  const p = palette();
  return {
    axisLine: { lineStyle: { color: p.soft } }, axisTick: { lineStyle: { color: p.soft } },
    axisLabel: { color: p.soft, hideOverlap: true, fontSize: letters(12) }, nameTextStyle: { color: p.soft, fontSize: letters(12) }, splitLine: { lineStyle: { color: p.line } },
    ...more, ...(more.axisLabel ? { axisLabel: { color: p.soft, hideOverlap: true, fontSize: letters(12), ...more.axisLabel } } : {}),
  };
}

const timeTick = (value) => plain(seconds(value));

// Of time with ticks at round numbers of one unit.
function roundTimeAxis(least_s, most_s, more) {
  const span = most_s - least_s;
  const [unit, name] = [[86400, 'days'], [3600, 'h'], [60, 'min'], [1, 's'], [1e-3, 'ms'], [1e-6, 'µs']].find(([size]) => span >= 2 * size) || [1e-6, 'µs'];
  const steps = unit === 3600 ? [1, 2, 3, 6, 12] : unit === 60 ? [1, 2, 5, 10, 20, 30] : [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000];
  const most = window.innerWidth < 700 ? 4 : 8;
  const interval = unit * (steps.find((step) => span / (unit * step) <= most) ?? 10 ** Math.ceil(Math.log10(span / unit / most)));
  const min = Math.floor(least_s / interval) * interval, max = Math.ceil(most_s / interval) * interval;
  return axis({ type: 'value', min, max, interval, axisLabel: { formatter: (value) => `${counted.format(value / unit)} ${name}` }, ...more });
}

// Of time from 0 on: ticks at round numbers alone, not at its end.
function timeAxis(length_s) {
  return axis({ type: 'value', min: 0, max: length_s, axisTick: { show: false }, axisLabel: { formatter: timeTick, showMaxLabel: false }, splitLine: { show: false } });
}

// Of bytes from 0 to at least `most`: ticks at round numbers of KiB, MiB, GiB.
function bytesAxis(most) {
  const unit = 1024 ** Math.max(0, Math.floor(Math.log2(Math.max(1, most)) / 10));
  const interval = unit * [1, 2, 4, 5, 10, 20, 40, 50, 100, 200, 250, 500].find((step) => most / (unit * step) <= 6);
  return axis({ type: 'value', min: 0, max: Math.ceil(most / interval) * interval, interval, axisLabel: { formatter: (value) => (value === 0 ? '0' : plain(bytes(value))) } });
}

function withTheme(option) {
  const p = palette();
  return {
    animation: false, textStyle: { color: p.ink, fontFamily: 'system-ui, "DejaVu Sans", sans-serif' },
    backgroundColor: 'transparent', ...option,
    tooltip: {
      confine: true, backgroundColor: p.card, borderColor: p.soft, textStyle: { color: p.ink, fontSize: letters(14) }, ...option.tooltip,
    },
    ...(option.legend ? { legend: { ...option.legend, show: false } } : {}),
  };
}

// The names of a chart's series above it, as buttons that hide and show them: one stop of Tab, arrows go on.
// ECharts' own legend hides what it has no room for, and no keyboard reaches it.
function legendOf(made, option) {
  const names = option.legend.data || option.series.map((one) => one.name);
  const shapes = { circle: '●', diamond: '◆', triangle: '▲', rect: '■', pin: '▼', roundRect: '■' };
  const swatch = (one) => {
    const colour = one.color || one.itemStyle?.color || one.lineStyle?.color;
    if (one.type === 'scatter') return el('span', { class: 'mark', style: `color:${colour}` }, shapes[one.symbol] || '●');
    if (one.type === 'line' && !one.areaStyle) return el('span', { class: 'stroke', style: `border-top:3px ${{ dashed: 'dashed', dotted: 'dotted' }[one.lineStyle?.type] || (Array.isArray(one.lineStyle?.type) ? 'dashed' : 'solid')} ${colour}` });
    return el('span', { class: 'block', style: `background:${colour}` });
  };
  const focused = [...made.legend.children].indexOf(document.activeElement);
  const buttons = names.map((name, i) => el('button', {
    type: 'button', 'aria-pressed': String(made.hidden[name] !== false), tabindex: i === Math.max(0, focused) ? '0' : '-1',
    onclick: () => { made.hidden[name] = made.hidden[name] === false; made.draw(); },
  }, swatch(option.series.find((one) => one.name === name)), name));
  made.legend.replaceChildren(...buttons);
  if (focused >= 0) buttons[Math.min(focused, buttons.length - 1)].focus();
}

function legendBox(label) {
  const box = el('div', { class: 'legend', role: 'toolbar', 'aria-label': `${label}: what is shown` });
  box.addEventListener('keydown', (event) => {
    const all = [...box.children], at = all.indexOf(document.activeElement);
    const way = { ArrowLeft: -1, ArrowUp: -1, ArrowRight: 1, ArrowDown: 1 }[event.key];
    if (!way || at < 0) return;
    const next = all[(at + way + all.length) % all.length];
    all[at].tabIndex = -1;
    next.tabIndex = 0;
    next.focus();
    event.preventDefault();
  });
  return box;
}

// chart(): a figure with a caption, a chart and its numbers.
//   label: for those who do not see it. option(): ECharts' option, asked for again when the theme changes.
//   zoom: arrows with Shift pan and + and - zoom. walk: [series, points] that arrows step through, each said by
//   tell(series, point). zoomed(chart): after each zoom. height: of pixels, or () => pixels. table: [head, rows, options].
function chart({ label, caption, option, height = 320, zoom = false, walk, tell, table, controls, zoomed }) {
  const box = el('div', {
    class: 'chart', tabindex: '0', role: zoom ? 'application' : 'img', 'aria-label': label,
    style: `height:${typeof height === 'function' ? height() : height}px`,
  });
  const legend = legendBox(label);
  const figure = el('figure', {}, caption && el('figcaption', {}, caption), controls, legend, box,
    table && details('Its numbers', tableOf(table[0], table[1], { label: `${label}: numbers`, ...table[2] })));
  const made = { box, figure, legend, option, instance: null, at: [0, -1], hidden: {} };
  made.draw = () => {
    if (!made.instance) {
      made.instance = echarts.init(box, null, { renderer: 'canvas' });
      if (zoomed) made.instance.on('datazoom', () => zoomed(made));
    }
    if (typeof height === 'function') box.style.height = `${height()}px`;
    made.instance.resize();
    const now = option();
    if (now.legend) {
      legendOf(made, now);
      now.legend = { ...now.legend, selected: made.hidden };
    }
    // Hiding a series or another theme leaves the zoom where it is.
    const before = made.instance.getOption()?.dataZoom?.[0];
    if (before && now.dataZoom) now.dataZoom = now.dataZoom.map((one) => ({ ...one, start: before.start, end: before.end }));
    made.instance.setOption(withTheme(now), { notMerge: true });
  };
  const range = () => {
    const now = made.instance.getOption().dataZoom[0];
    return [now.start, now.end];
  };
  made.zoomTo = (start, end) => {
    const width = Math.min(100, Math.max(0.01, end - start));
    const from = Math.min(Math.max(0, start), 100 - width);
    made.instance.dispatchAction({ type: 'dataZoom', start: from, end: from + width });
  };
  made.zoomBy = (factor) => {
    const [start, end] = range();
    const middle = (start + end) / 2, half = (end - start) * factor / 2;
    made.zoomTo(middle - half, middle + half);
  };
  made.pan = (share) => {
    const [start, end] = range();
    made.zoomTo(start + (end - start) * share, end + (end - start) * share);
  };
  const step = (series, point) => {
    const [lines, points] = [walk().length, walk()];
    if (lines === 0) return;
    made.at[0] = (made.at[0] + series + lines) % lines;
    const many = points[made.at[0]];
    made.at[1] = series !== 0 ? Math.min(Math.max(made.at[1], 0), many - 1) : (made.at[1] + point + many) % many;
    if (tell) say(tell(made.at[0], made.at[1], made));
  };
  box.addEventListener('keydown', (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const way = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] }[event.key];
    if (zoom && (event.key === '+' || event.key === '=')) made.zoomBy(0.5);
    else if (zoom && event.key === '-') made.zoomBy(2);
    else if (zoom && (event.key === '0' || event.key === 'Home')) made.zoomTo(0, 100);
    else if (zoom && way && event.shiftKey && way[1] !== 0) made.pan(way[1] * 0.25);
    else if (walk && way) step(way[0], way[1]);
    else return;
    event.preventDefault();
  });
  allCharts.push(made);
  return made;
}

// Shows the tooltip of a point, for keyboards.
function showPoint(made, seriesIndex, dataIndex) {
  made.instance.dispatchAction({ type: 'showTip', seriesIndex, dataIndex });
}

function zoomControls(target) {
  const button = (text, name, act) => el('button', { type: 'button', 'aria-label': name, onclick: act }, text);
  return [
    button('+', 'Zoom in', () => target().zoomBy(0.5)), button('−', 'Zoom out', () => target().zoomBy(2)),
    button('◀', 'Earlier', () => target().pan(-0.5)), button('▶', 'Later', () => target().pan(0.5)),
    button('All', 'All of the step', () => target().zoomTo(0, 100)),
  ];
}

// Whiskers from low to high in a chart of points [x, y, low, high]; across: along x.
function whiskers(name, data, colour, across) {
  return {
    name, type: 'custom', silent: true, z: 1, data, encode: across ? { x: [0, 2, 3], y: 1 } : { x: 0, y: [1, 2, 3] },
    tooltip: { show: false }, clip: true,
    renderItem(params, api) {
      const ends = [2, 3].map((i) => (across ? api.coord([api.value(i), api.value(1)]) : api.coord([api.value(0), api.value(i)])));
      const line = (x1, y1, x2, y2) => ({ type: 'line', shape: { x1, y1, x2, y2 }, style: { stroke: colour, lineWidth: 1.5, opacity: 0.7 } });
      const cap = (end) => (across ? line(end[0], end[1] - 4, end[0], end[1] + 4) : line(end[0] - 4, end[1], end[0] + 4, end[1]));
      return { type: 'group', children: [line(...ends[0], ...ends[1]), cap(ends[0]), cap(ends[1])] };
    },
  };
}

function setTheme(name) {
  themeName = name;
  document.documentElement.dataset.theme = name;
  for (const made of allCharts) if (made.instance) made.draw();
}

// Charts are drawn when they are about to be seen.
const chartWatcher = new IntersectionObserver((entries) => {
  for (const entry of entries) {
    if (!entry.isIntersecting) continue;
    chartWatcher.unobserve(entry.target);
    const made = allCharts.find((one) => one.box === entry.target);
    if (made && !made.instance) made.draw();
  }
}, { rootMargin: '600px' });

function watchCharts(charts) {
  for (const made of charts) chartWatcher.observe(made.box);
}

function dropCharts(charts) {
  for (const made of charts) {
    chartWatcher.unobserve(made.box);
    if (made.instance) made.instance.dispose();
    allCharts.splice(allCharts.indexOf(made), 1);
  }
}

// As wide as the page, and all of them on paper.
function keepCharts() {
  let waiting = 0;
  window.addEventListener('resize', () => {
    clearTimeout(waiting);
    waiting = setTimeout(() => { for (const made of allCharts) if (made.instance) made.draw(); }, 150);
  });
  window.addEventListener('beforeprint', () => { for (const made of allCharts) made.draw(); });
}
