// The teacher's tab: a law with a slider each, the simulated truth beside it, and a question.
const kLessonQuiet_ms = 250;

// One chart of lines (laws) and points (what was simulated). x, y: { name, format, log, min, max }.
function lawChart({ label, caption, x, y, series, height = 315 }) {
  const shown = series.filter((one) => one.data.length > 0), points = shown.filter((one) => one.points);
  const text = (one, at) => `${one.name}: ${x.name} ${x.format(one.data[at][0])}, ${y.name} ${y.format(one.data[at][1])}`;
  const scale = (side, more) => axis({ type: side.log ? 'log' : 'value', logBase: side.log === 2 ? 2 : 10, name: side.name, min: side.min, max: side.max, axisLabel: { formatter: (value) => plain(side.format(value)) }, ...more });
  return chart({
    label, caption, height,
    walk: () => points.map((one) => one.data.length),
    tell: (which, at, made) => { showPoint(made, shown.indexOf(points[which]), at); return text(points[which], at); },
    option: () => ({
      grid: { left: 16, right: 28, top: 30, bottom: 40, containLabel: true }, legend: {},
      tooltip: { trigger: 'item', formatter: (at) => escaped(shown[at.seriesIndex].points ? text(shown[at.seriesIndex], at.dataIndex) : at.seriesName) },
      xAxis: scale(x, { nameLocation: 'middle', nameGap: 28 }), yAxis: scale(y, { nameLocation: 'end', nameTextStyle: { align: 'left', color: palette().soft, fontSize: letters(12) } }),
      series: shown.map((one, i) => ({
        name: one.name, data: one.data, type: one.points ? 'scatter' : 'line', symbol: one.points ? ['circle', 'diamond', 'triangle'][i % 3] : 'none', symbolSize: 11,
        color: one.soft ? palette().soft : palette().series[one.colour ?? i], lineStyle: { type: one.dotted ? 'dotted' : 'solid', width: 2 }, z: one.points ? 5 : 2,
      })),
    }),
    table: points.length > 0 && [[x.name, ...points.map((one) => one.name)],
      [...new Set(points.flatMap((one) => one.data.map((point) => point[0])))].sort((a, b) => a - b).map((at) => [x.format(at), ...points.map((one) => {
        const point = one.data.find((some) => some[0] === at);
        return point ? y.format(point[1]) : '';
      })])],
  }).figure;
}

const along = (from, to, f, count2 = 49) => Array.from({ length: count2 }, (value, i) => from * (to / from) ** (i / (count2 - 1))).map((at) => [at, f(at)]);
const whole = (value) => exact(Number(value));

// ---- a ring, step by step: whose contributions each rank's chunks hold ----
function ringStates(n) {
  let held = Array.from({ length: n }, () => Array(n).fill(1));
  const states = [{ held, moved: [] }];
  for (let step = 0; step < 2 * (n - 1); step += 1) {
    const gather = step >= n - 1, next = held.map((row) => [...row]), moved = [];
    for (let rank = 0; rank < n; rank += 1) {
      const chunk = (((gather ? rank + 1 - (step - (n - 1)) : rank - step) % n) + n) % n, to = (rank + 1) % n;
      next[to][chunk] = gather ? held[rank][chunk] : held[to][chunk] + held[rank][chunk];
      moved.push([to, chunk]);
    }
    held = next;
    states.push({ held, moved });
  }
  return states;
}

function ringPicture(n, step) {
  const { held, moved } = ringStates(n)[step];
  const what = step === 0 ? 'Before: each rank has its own numbers.' : step < n ? `Step ${step}, reduce-scatter: each rank sends a chunk to the next, which adds it.` : `Step ${step}, all-gather: each rank passes a finished sum on.`;
  const fresh = (rank, chunk) => moved.some(([to, at]) => to === rank && at === chunk);
  return el('div', { class: 'scroll', tabindex: '0', role: 'group', 'aria-label': 'The chunks of each rank' },
    el('p', { class: 'soft' }, `${what} The number says how many ranks’ numbers are added up in a chunk; ${n} is all of them. Framed: what has just come.`),
    el('table', { class: 'ring' },
      el('thead', {}, el('tr', {}, el('th', { scope: 'col' }, 'rank'), held[0].map((value, chunk) => el('th', { scope: 'col' }, `chunk ${chunk}`)))),
      el('tbody', {}, held.map((row, rank) => el('tr', {}, el('th', { scope: 'row' }, rank), row.map((value, chunk) =>
        el('td', { class: [value === n ? 'full' : '', fresh(rank, chunk) ? 'fresh' : ''].join(' '), style: `--share:${value / n}` }, String(value))))))));
}

const scheduleNames = { gpipe: 'GPipe', '1f1b': '1F1B', interleaved: 'interleaved, 2 chunks', 'zero-bubble': 'zero-bubble' };
const bubblesSeen = new Map();

// controls: key, name, values, text; `local`: the server is not asked. show(told, values): elements.
const lessonList = [
  {
    name: 'amdahl', title: 'Amdahl: why sixty-four servers are not sixty-four times as fast',
    text: 'A share s of the work cannot be split over n servers. BERT-large is trained on servers of one V100 with 256 sequences per step, whatever their number (strong scaling). Gradients travel while the backward pass still runs.',
    formula: 'S(n) = 1 / (s + (1 − s) / n)',
    controls: [
      { key: 'serial', name: 'Serial share s', values: ['0', '0.001', '0.002', '0.005', '0.01', '0.02', '0.05', '0.1', '0.2', '0.5'], value: '0.02', text: (value) => percent(Number(value)), local: true },
      { key: 'network', name: 'Network of 100 Gb/s', values: ['0.05', '0.1', '0.25', '0.5', '1', '2', '4', '10', '20'], value: '1', text: timesText },
    ],
    show: (told, values) => {
      const s = Number(values.serial), points = told.points.map((one) => [one.devices, one.speedup]);
      const best = told.points.reduce((a, b) => (b.speedup > a.speedup ? b : a));
      return [
        lawChart({
          label: 'Speed-up by servers', caption: `The law with s = ${percent(s)} beside simulated steps. From one and two servers alone s is ${percent(told.serial_of_two, 2)}; most speed-up at ${best.devices} servers.`,
          x: { name: 'servers', format: whole, log: 2, min: 1, max: 64 }, y: { name: 'speed-up', format: (value) => counted.format(Number(value.toPrecision(3))), log: 2, min: 1, max: 64 },
          series: [{ name: 'ideal', data: [[1, 1], [64, 64]], dotted: true, soft: true }, { name: 'Amdahl', data: along(1, 64, (n) => 1 / (s + (1 - s) / n)), colour: 1 }, { name: 'simulated', data: points, points: true, colour: 0 }],
        }),
        tableOf(['servers', 'step', 'computing', 'optimizer', 'waiting for gradients'], told.points.map((one) => [one.devices, seconds(one.step_time_s), seconds(one.compute_s), seconds(one.optimizer_s), seconds(one.data_comm_s)]), { label: 'Where the time goes' }),
      ];
    },
    question: 'Choose s so that the law meets the simulated points. On which side does it leave them, and why can no s do better? Then make the network slow.',
    answer: 'The law only ever rises, the simulated speed-up has a top: the all-reduce is no constant share. It grows with the servers and is hidden behind a backward pass that shrinks. The optimizer, the same on every server, is the one part that Amdahl means. On a slow network the top comes earlier.',
  },
  {
    name: 'bubbles', title: 'Pipelines: bubbles',
    text: 'A model of 22 billion parameters, cut into p stages of equal layers. A stage works for m micro-batches and idles while the pipeline fills and drains. The drawn step is simulated.',
    formula: 'idle / work = (p − 1) / m;  with v chunks per stage (p − 1) / (v m)',
    controls: [
      { key: 'stages', name: 'Stages p', values: ['2', '4', '8'], value: '4', text: whole },
      { key: 'micro_batches', name: 'Micro-batches m', values: ['4', '8', '16', '32', '64'], value: '8', text: whole },
      { key: 'schedule', name: 'Schedule', values: ['gpipe', '1f1b', 'interleaved', 'zero-bubble'], value: '1f1b', text: (value) => scheduleNames[value] },
    ],
    show: (told, values) => {
      const p = Number(values.stages), m = Number(values.micro_batches), chunks = values.schedule === 'interleaved' ? 2 : 1, key = `${p} ${values.schedule}`;
      const seen = bubblesSeen.get(key) || new Map();
      bubblesSeen.set(key, seen.set(m, told.idle_by_work));
      return [
        ranksChart({}, told.timeline).figure,
        lawChart({
          label: 'Idle by work', caption: `This step: the formula says ${percent((p - 1) / m / chunks)}, the simulation ${percent(told.idle_by_work)}; memory of the fullest device ${bytes(told.memory_bytes)}. Points gather as you move the sliders.`,
          x: { name: 'micro-batches', format: whole, log: 2, min: 4, max: 64 }, y: { name: 'idle / work', format: (value) => percent(value), min: 0 },
          series: [{ name: 'formula', data: along(4, 64, (at) => (p - 1) / at / chunks), colour: 1 }, { name: `simulated: ${p} stages, ${scheduleNames[values.schedule]}`, data: [...seen].sort((a, b) => a[0] - b[0]), points: true, colour: 0 }],
        }),
      ];
    },
    question: 'GPipe and 1F1B take nearly the same time: then why does nobody run GPipe? And why is a simulated bubble smaller than the formula’s?',
    answer: 'Memory: GPipe holds the activations of all m micro-batches, 1F1B of at most p. The bubble is smaller because the last stage has the head and the loss besides its layers: it works longer, and idle is counted beside the busiest stage.',
  },
  {
    name: 'ring', title: 'Rings, step by step',
    text: 'n ranks add up S bytes. Each rank cuts its bytes into n chunks. A chunk travels round the ring and collects its sum, which then travels round once more. Below, the same all-reduce is simulated over servers with one port of 100 Gb/s each.',
    formula: 'T = 2 (n − 1) α + 2 (n − 1) / n · S / B',
    controls: [
      { key: 'ranks', name: 'Ranks in the picture', values: ['2', '3', '4', '5', '6', '8'], value: '4', text: whole, local: true },
      { key: 'step', name: 'Step', values: (values) => Array.from({ length: 2 * Number(values.ranks) - 1 }, (value, i) => String(i)), value: '0', text: (value, values) => `${value} of ${2 * (Number(values.ranks) - 1)}`, local: true },
      { key: 'servers', name: 'Servers n', values: ['2', '4', '8', '16', '32', '64'], value: '8', text: whole },
      { key: 'alpha', name: 'Latency of a step α', values: ['1e-6', '2e-6', '4e-6', '5e-6', '6e-6', '7e-6', '8e-6', '1e-5', '2e-5', '5e-5'], value: '1e-5', text: (value) => seconds(Number(value)), local: true },
    ],
    show: (told, values) => {
      const n = Number(values.servers), alpha = Number(values.alpha), law = (s) => 2 * (n - 1) * alpha + 2 * (n - 1) / n * s / told.port_bytes_per_s;
      const sorted = (list2) => list2.map((one) => [one.bytes, one.time_s]).sort((a, b) => a[0] - b[0]);
      return [
        ringPicture(Number(values.ranks), Math.min(Number(values.step), 2 * (Number(values.ranks) - 1))),
        lawChart({
          label: 'Time of an all-reduce by its bytes', caption: `An all-reduce over ${n} servers; B is the port’s ${rate(told.port_bytes_per_s)}. NCCL would choose ${told.chosen.algorithm} for 100 MiB: ${seconds(told.chosen.time_s)}.`,
          x: { name: 'bytes', format: bytes, log: 2 }, y: { name: 'time', format: seconds, log: 10 },
          series: [{ name: 'formula of the ring', data: along(1024, 2 ** 30, law), colour: 1 }, { name: 'ring', data: sorted(told.ring), points: true, colour: 0 }, { name: 'tree', data: sorted(told.tree), points: true, colour: 2 }],
        }),
      ];
    },
    question: 'Find α by its small vectors and look at large ones. From which size on does the number of servers hardly matter? Where is a tree better, and why?',
    answer: 'Small vectors cost 2 (n − 1) α, a line over the servers; large ones 2 (n − 1) / n · S / B, which is never more than 2 S / B however many servers there are. A tree has 2 log₂ n steps of latency: it wins where α decides, with many servers and few bytes.',
  },
  {
    name: 'servers', title: 'Parameter servers',
    text: 'W workers send their gradients (G bytes) to M servers, which add them up and send parameters back, half as many bytes. Each server stands on a worker’s machine and shares its port of P bytes a second. ResNet-50, 32 images per worker; no traffic is hidden behind the backward pass.',
    formula: 'T = T₁ + 1.5 (W − 1) / M · G / P;  ring: T = T₁ + 2 (W − 1) / W · G / P',
    controls: [{ key: 'workers', name: 'Workers W', values: ['2', '4', '8', '16'], value: '8', text: whole }],
    show: (told, values) => {
      const w = Number(values.workers), g = told.gradient_bytes / told.port_bytes_per_s;
      return [lawChart({
        label: 'Step time by servers', caption: `${w} workers; alone a step takes ${seconds(told.alone_s)}, G / P is ${seconds(g)}. The ring: formula ${seconds(told.alone_s + 2 * (w - 1) / w * g)}, simulated ${seconds(told.ring_s)}.`,
        x: { name: 'servers', format: whole, log: 2, min: 1, max: Math.max(2, w) }, y: { name: 'step', format: seconds, min: 0 },
        series: [
          { name: 'formula of servers', data: along(1, w, (m) => told.alone_s + 1.5 * (w - 1) / m * g), colour: 1 }, { name: 'servers, simulated', data: told.points.map((one) => [one.servers, one.step_time_s]), points: true, colour: 0 },
          { name: 'ring, simulated', data: [[1, told.ring_s], [w, told.ring_s]], dotted: true, colour: 2 },
        ],
      })];
    },
    question: 'How many servers make the step as quick as the ring’s? Is the server the bottleneck, or something else?',
    answer: 'One port is. With a server on each machine every port carries 1.5 (W − 1) / W · G, less than the ring’s 2 (W − 1) / W · G, for parameters go back in half precision. One server’s time grows with every worker.',
  },
  {
    name: 'zero', title: 'Where ZeRO saves memory',
    text: 'Mixed precision with Adam keeps 2 bytes of weights, 4 of gradients and 12 of optimizer state for each of Ψ parameters. ZeRO-1 shards the optimizer over N devices, ZeRO-2 gradients too, ZeRO-3 weights too. Llama 2 7B, one sequence of 4,096 tokens per device, all activations recomputed.',
    formula: '18 Ψ;  ZeRO-1: 6 Ψ + 12 Ψ / N;  ZeRO-2: 2 Ψ + 16 Ψ / N;  ZeRO-3: 18 Ψ / N',
    controls: [{ key: 'devices', name: 'Devices N', values: ['2', '4', '8', '16', '32', '64', '128', '256', '512'], value: '8', text: whole }],
    show: (told, values) => {
      const n = Number(values.devices), psi = told.parameters, law = [18 * psi, (6 + 12 / n) * psi, (2 + 16 / n) * psi, 18 / n * psi];
      const parts = [['weights', 0], ['gradients', 1], ['optimizer', 3], ['activations', 2], ['other', 7]];
      const names = told.stages.map((one) => (one.zero === 0 ? 'no ZeRO' : `ZeRO-${one.zero}`));
      const text = (part, at) => `${names[at]}: ${part} ${bytes(told.stages[at][part])}`;
      return [chart({
        label: 'Memory of a device by what ZeRO shards', caption: `Bars: the memory model’s parts on ${n} devices; diamonds: the formula, states alone. The dashed line is the device’s ${bytes(told.capacity_bytes)}.`, height: 340,
        walk: () => parts.map(() => 4),
        tell: (part, at, made) => { showPoint(made, part, at); return text(parts[part][0], at); },
        option: () => ({
          grid: { left: 16, right: 28, top: 12, bottom: 20, containLabel: true }, legend: {},
          tooltip: { trigger: 'item', formatter: (at) => escaped(at.seriesIndex < parts.length ? text(parts[at.seriesIndex][0], at.dataIndex) : `${names[at.dataIndex]}: formula ${bytes(law[at.dataIndex])}`) },
          xAxis: axis({ type: 'category', data: names, axisLabel: { interval: 0, hideOverlap: false, fontSize: letters(window.innerWidth < 700 ? 10 : 12) } }), yAxis: bytesAxis(Math.max(...told.stages.map((one) => one.total), told.capacity_bytes)),
          series: [
            ...parts.map(([part, colour], i) => ({
              name: part, type: 'bar', stack: 'bytes', barMaxWidth: 70, color: palette().series[colour], data: told.stages.map((one) => one[part]),
              ...(i === 0 ? { markLine: { symbol: 'none', silent: true, data: [{ yAxis: told.capacity_bytes }], lineStyle: { color: palette().parts.data_comm, type: 'dashed', width: 2 }, label: { show: false } } } : {}),
            })),
            { name: 'formula of the states', type: 'scatter', symbol: 'diamond', symbolSize: 14, color: palette().ink, data: law, z: 5 },
          ],
        }),
        table: [['of a device', ...names], [...parts.map(([part]) => [part, ...told.stages.map((one) => bytes(one[part]))]), ['together', ...told.stages.map((one) => bytes(one.total))], ['formula of the states', ...law.map(bytes)]]],
      }).figure];
    },
    question: 'From how many devices on does each stage fit? What is left on a device with ZeRO-3 on 512 devices, and what would take that?',
    answer: 'What is left are activations, buffers for the layer that is being gathered, and what the framework keeps: ZeRO shards states, nothing else. Recomputation, shorter micro-batches and tensor or context parallelism take the rest.',
  },
  {
    name: 'failures', title: 'When machines fail: how often to save',
    text: 'Llama 3 70B on 1,024 H100. Writing a checkpoint takes δ. A failure interrupts the run every M on average; R is then lost to noticing it, restarting and reading the checkpoint. With a checkpoint every τ, saving costs the share δ / τ, and a failure half an interval.',
    formula: 'goodput = 1 / (1 + δ / τ + τ / 2M + R / M);  best τ ≈ √(2 δ M) (Young)',
    controls: [
      { key: 'mtbf_device_hours', name: 'A device fails every', values: ['5000', '10000', '20000', '50000', '100000', '300000', '1000000'], value: '50000', text: (value) => seconds(Number(value) * 3600) },
      { key: 'checkpoint_bandwidth', name: 'Storage', values: ['5e9', '2e10', '5e10', '2e11', '1e12'], value: '5e10', text: (value) => rate(Number(value)) },
    ],
    show: (told) => {
      const points = told.points.map((one) => [one.every_s, one.goodput]), young = Math.sqrt(2 * told.checkpoint_s * told.mtti_s);
      const law = (tau) => 1 / (1 + told.checkpoint_s / tau + tau / (2 * told.mtti_s) + told.down_s / told.mtti_s);
      const first = points[0][0], last = points[points.length - 1][0];
      return [
        lawChart({
          label: 'Goodput by the interval between checkpoints', caption: `δ is ${seconds(told.checkpoint_s)} (${bytes(told.checkpoint_bytes)}), M ${seconds(told.mtti_s)}. Young says τ = ${seconds(young)}, Orrery ${seconds(told.best_every * told.step_time_s)}. Each point is the mean of 40 simulated runs.`,
          x: { name: 'between checkpoints', format: seconds, log: 10, min: first, max: last }, y: { name: 'goodput', format: (value) => percent(value), max: 1, min: Math.floor(20 * Math.min(...points.map((point) => point[1]))) / 20 },
          series: [{ name: 'formula', data: along(first, last, law), colour: 1 }, { name: 'simulated', data: points, points: true, colour: 0 }],
        }),
        tableOf(['between checkpoints', 'steps', 'goodput', 'lost to saving', 'lost to computing again'], told.points.map((one) => [seconds(one.every_s), exact(one.every), percent(one.goodput), percent(one.checkpoint), percent(one.rework)]), { label: 'What is lost' }),
      ];
    },
    question: 'Twice too often or twice too rarely: what does it cost? Four times as many machines: by what factor does the loss grow at the best interval?',
    answer: 'Little: the optimum is flat. M falls to a quarter, and the loss at the optimum is about √(2 δ / M): it doubles.',
  },
];

function lessonSlider(control, values, changed) {
  const id = newId('lesson');
  const input = el('input', { id, type: 'range', min: 0, step: 1 }), output = el('output', { for: id });
  const steps = () => (typeof control.values === 'function' ? control.values(values) : control.values);
  const refresh = () => {
    input.max = steps().length - 1;
    const at = Math.max(0, steps().indexOf(values[control.key]));
    input.value = at;
    values[control.key] = steps()[at];
    output.textContent = control.text(values[control.key], values);
    input.setAttribute('aria-valuetext', output.textContent);
  };
  input.addEventListener('input', () => {
    values[control.key] = steps()[Number(input.value)];
    changed(control);
  });
  return { row: el('div', { class: 'field' }, el('label', { for: id }, control.name), output, input), refresh };
}

function lessonCard(lesson2) {
  const values = Object.fromEntries(lesson2.controls.map((control) => [control.key, control.value]));
  const result = el('div', { class: 'told' }, el('p', { class: 'soft' }, 'Simulating …'));
  const id = `lesson-${lesson2.name}`;
  let told = null, charts = [], pending = null, timer = 0;
  const show = () => {
    dropCharts(charts);
    const before = allCharts.length, elements = lesson2.show(told, values).flat(2).filter(Boolean);
    charts = allCharts.slice(before);
    result.replaceChildren(...elements);
    watchCharts(charts);
  };
  const ask2 = async () => {
    if (pending) pending.abort();
    const mine = new AbortController();
    pending = mine;
    section.dataset.state = 'asked';
    result.classList.add('stale');
    const said = new URLSearchParams({ lesson: lesson2.name });
    for (const control of lesson2.controls) if (!control.local) said.set(control.key, values[control.key]);
    try {
      const response = await fetch(`/lesson?${said}`, { signal: mine.signal });
      if (response.status === 503) {
        timer = setTimeout(ask2, 1000);
        return;
      }
      const all = response.ok ? (await response.text()).trim().split('\n').map((line) => JSON.parse(line)) : [{ text: await response.text() }];
      if (mine !== pending) return;
      const bad = all.find((line) => line.text);
      section.dataset.state = bad ? 'wrong' : 'told';
      result.classList.remove('stale');
      if (bad) {
        dropCharts(charts);
        charts = [];
        told = null;
        result.replaceChildren(el('p', { class: 'wrong-text' }, bad.text));
        say(bad.text);
        return;
      }
      told = all.find((line) => line.told).told;
      show();
    } catch (error) {
      if (mine === pending && error.name !== 'AbortError') result.replaceChildren(el('p', { class: 'wrong-text' }, `The server does not answer: ${error.message}`));
    }
  };
  const sliders = [];
  const changed = (control) => {
    for (const one of sliders) one.refresh();
    if (control.local) {
      if (told) show();
      return;
    }
    clearTimeout(timer);
    timer = setTimeout(ask2, kLessonQuiet_ms);
  };
  for (const control of lesson2.controls) sliders.push(lessonSlider(control, values, changed));
  for (const one of sliders) one.refresh();
  const section = el('section', { class: 'card lesson', id, 'aria-labelledby': `${id}-h` },
    el('h2', { id: `${id}-h` }, lesson2.title), el('p', {}, lesson2.text), el('p', { class: 'formula' }, lesson2.formula),
    el('div', { class: 'sliders' }, sliders.map((one) => one.row)), result,
    el('p', {}, el('strong', {}, 'Question. '), lesson2.question), details('An answer', el('p', {}, lesson2.answer)));
  section.dataset.state = 'waiting';
  return { section, ask: ask2 };
}

// Lessons ask when they are about to be seen.
function showLessons(into) {
  const made = lessonList.map(lessonCard);
  into.append(el('p', { class: 'soft' }, 'Laws of distributed training with a slider each, beside what Orrery simulates. The notebooks of docs/python.md go on from here.'), ...made.map((one) => one.section));
  const watcher = new IntersectionObserver((entries) => {
    for (const entry of entries) {
      if (!entry.isIntersecting) continue;
      watcher.unobserve(entry.target);
      made.find((one) => one.section === entry.target).ask();
    }
  }, { rootMargin: '400px' });
  for (const one of made) watcher.observe(one.section);
}

// ---- two tabs; planShown(): when that is seen for the first time ----
function showTabs(planShown) {
  const tabs = [...document.querySelectorAll('[role="tab"]')];
  let lessonsShown = false, plansShown = false;
  const choose = (tab, focus) => {
    for (const one of tabs) {
      const on = one === tab;
      one.setAttribute('aria-selected', on);
      one.tabIndex = on ? 0 : -1;
      document.getElementById(one.getAttribute('aria-controls')).hidden = !on;
    }
    if (focus) tab.focus();
    window.history.replaceState(null, '', `${window.location.pathname}${window.location.search}${tab.id === 'tab-learn' ? '#learn' : ''}`);
    if (tab.id === 'tab-learn' && !lessonsShown) {
      lessonsShown = true;
      showLessons(document.getElementById('learn'));
    }
    if (tab.id === 'tab-plan' && !plansShown) {
      plansShown = true;
      planShown();
    }
    for (const made of allCharts) if (made.instance && made.box.offsetParent) made.draw();
  };
  tabs.forEach((tab, at) => {
    tab.addEventListener('click', () => choose(tab));
    tab.addEventListener('keydown', (event) => {
      const way = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
      if (way) choose(tabs[(at + way + tabs.length) % tabs.length], true);
    });
  });
  choose(window.location.hash === '#learn' ? tabs[1] : tabs[0]);
}
