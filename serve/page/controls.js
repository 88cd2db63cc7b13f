// The controls: what is asked is what stands in the page's address, and the other way round.
const isWhole = (text) => /^\d+$/.test(text);
const timesText = (value) => (Number(value) === 1 ? 'as it is' : `× ${Number(value)}`);
const powers = (from, to) => {
  const list = [];
  for (let value = from; value <= to; value *= 2) list.push(String(value));
  return list;
};
const times = ['0.1', '0.25', '0.5', '1', '2', '4', '10'];
const hours = (value) => (value === '' ? 'never' : `every ${seconds(Number(value) * 3600)} per device`);
const amounts = ['1e9', '1e10', '1e11', '3e11', '1e12', '2e12', '5e12', '15e12'];

let choices = null, asked = {};

const modelAsked = () => choices.workloads.find((one) => one.name === asked.workload);
const clusterAsked = () => choices.clusters.find((one) => one.name === asked.cluster);

function deviceSteps() {
  const cluster = clusterAsked();
  if (!cluster) return ['1'];
  const list = powers(1, cluster.devices - 1);
  list.push(String(cluster.devices));
  const most = cluster.grows ? choices.most.devices : Math.min(choices.most.devices, cluster.devices * cluster.nodes);
  for (let devices = 2 * cluster.devices; devices <= most; devices *= 2) list.push(String(devices));
  return list;
}

function devicesText(value) {
  const cluster = clusterAsked();
  const nodes = cluster ? Math.max(1, Number(value) / cluster.devices) : 1;
  return `${exact(Number(value))} (${numbered(nodes, 'node')})`;
}

const named = (list) => list.map((one) => [one.name, one.name]);
const searched = (values) => [['', 'searched'], ...values.map((value) => [value, value])];
const own = (values) => [['', 'its own'], ...values.map((value) => [value, value])];

// steps: a slider over so many values; options: a list to choose from. `fallback`: what is not put into the address.
const fields = [
  { key: 'workload', name: 'Model', options: () => choices.workloads.map((one) => [one.name, `${one.name} (${count(one.parameters)})`]), fallback: 'llama3-70b' },
  { key: 'cluster', name: 'Cluster', options: () => named(choices.clusters), fallback: 'dgx-h100' },
  { key: 'gpus', name: 'Devices', steps: deviceSteps, text: devicesText, fallback: '512' },
  { key: 'global_batch', name: 'Global batch', steps: () => powers(1, choices.most.global_batch), text: (value) => exact(Number(value)), fallback: '512' },
  { key: 'seq_len', name: 'Tokens per sequence', steps: () => powers(128, choices.most.seq_len), text: (value) => exact(Number(value)), shown: () => modelAsked()?.seq_len > 0, fallback: () => String(modelAsked()?.seq_len || '') },
  { key: 'network', name: 'Bandwidth between nodes', steps: () => times, text: timesText, fallback: '1' },
  { key: 'device', name: 'Device', options: () => [['', `the cluster’s: ${clusterAsked()?.device}`], ...named(choices.devices.filter((one) => one.vendor === clusterAsked()?.vendor && one.name !== clusterAsked()?.device))], fallback: '' },
  { heading: 'A whole run' },
  { key: 'amount', name: () => (modelAsked()?.seq_len > 0 ? 'Tokens to train on' : 'Samples to train on'), steps: () => amounts, text: (value) => count(Number(value)), fallback: '1e12' },
  { key: 'mtbf_device_hours', name: 'Devices fail', steps: () => ['', '1e6', '3e5', '1e5', '5e4', '2e4', '1e4', '3e3', '1e3'], text: hours, fallback: '' },
  { key: 'checkpoint_bandwidth', name: 'Storage for checkpoints', steps: () => ['1e9', '5e9', '2e10', '5e10', '1e11', '1e12'], text: (value) => rate(Number(value)), shown: () => (asked.mtbf_device_hours ?? '') !== '', fallback: '5e10' },
  { more: 'More: hardware' },
  { key: 'intra-node', name: 'Bandwidth inside a node', steps: () => times, text: timesText, fallback: '1' },
  { key: 'device-speed', name: 'Speed of a device', steps: () => times, text: timesText, fallback: '1' },
  { key: 'device-memory', name: 'Memory of a device', steps: () => times, text: timesText, fallback: '1' },
  { more: 'More: training' },
  { key: 'precision', name: 'Precision', options: () => own(['bf16', 'fp16', 'fp8', 'fp4', 'tf32', 'fp32']), fallback: '' },
  { key: 'optimizer', name: 'Optimizer', options: () => own(['adam', 'adamw', 'momentum', 'sgd']), fallback: '' },
  { key: 'runtime', name: 'Software', options: () => own(choices.runtimes.map((one) => one.name)), fallback: '' },
  { key: 'objective', name: 'Minimise', options: () => [['', 'time of a step'], ['cost', 'cost'], ['energy', 'energy'], ['memory', 'memory']], fallback: '' },
  { more: 'More: the plan' },
  { key: 'tp', name: 'Tensor parallel', options: () => searched(powers(1, 64)), fallback: '' },
  { key: 'pp', name: 'Pipeline stages', options: () => searched(powers(1, 64)), fallback: '' },
  { key: 'dp', name: 'Data parallel', options: () => searched(powers(1, choices.most.devices)), fallback: '' },
  { key: 'micro_batch', name: 'Micro-batch', options: () => searched(powers(1, 64)), fallback: '' },
  { key: 'zero', name: 'ZeRO', options: () => searched(['0', '1', '2', '3']), fallback: '' },
  { key: 'recompute', name: 'Recomputation', options: () => searched(['none', 'selective', 'full']), fallback: '' },
  { key: 'schedule', name: 'Pipeline schedule', options: () => searched(['gpipe', '1f1b', 'interleaved', 'zero-bubble', 'dualpipe-v']), fallback: '' },
];
const keyed = fields.filter((field) => field.key);

const fallbackOf = (field) => (typeof field.fallback === 'function' ? field.fallback() : field.fallback);
const nameOf = (field) => (typeof field.name === 'function' ? field.name() : field.name);
const valueOf = (field) => asked[field.key] ?? fallbackOf(field);

function readAddress() {
  const given = new URLSearchParams(window.location.search);
  asked = {};
  for (const field of keyed) if (given.has(field.key)) asked[field.key] = given.get(field.key);
  for (const key of ['workload', 'cluster']) asked[key] ??= keyed.find((field) => field.key === key).fallback;
}

// A link says the same whatever holds by itself one day: what is always asked stands in it.
const always = ['workload', 'cluster', 'gpus', 'global_batch', 'amount'];

function writeAddress() {
  const said = new URLSearchParams();
  for (const field of keyed) if (always.includes(field.key) || (asked[field.key] !== undefined && valueOf(field) !== fallbackOf(field))) said.set(field.key, valueOf(field));
  said.sort();
  window.history.replaceState(null, '', `${window.location.pathname}?${said}${window.location.hash}`);
}

// What the server is asked: all that is shown, but what only says what holds anyway.
function question() {
  const said = new URLSearchParams();
  for (const field of keyed) {
    if (field.shown && !field.shown()) continue;
    if ((field.key === 'amount' || field.key === 'checkpoint_bandwidth') && valueOf(keyed.find((one) => one.key === 'mtbf_device_hours')) === '') continue;
    const value = valueOf(field);
    if (value !== '' && !(field.text === timesText && Number(value) === 1)) said.set(field.key, value);
  }
  return said;
}

// A value between two steps has a step of its own.
function stepsOf(field) {
  const steps = [...field.steps()], value = valueOf(field);
  if (!steps.includes(value) && value !== '' && Number.isFinite(Number(value))) {
    const same = steps.findIndex((step) => step !== '' && Number(step) === Number(value));
    if (same >= 0) steps[same] = value;
    else {
      const down = steps.filter((step) => step !== '').length > 1 && Number(steps.at(-1)) < Number(steps.at(-2));
      const at = steps.findIndex((step) => step !== '' && (down ? Number(step) < Number(value) : Number(step) > Number(value)));
      steps.splice(at < 0 ? steps.length : at, 0, value);
    }
  }
  return steps;
}

function slider(field, changed) {
  const id = newId('control');
  const input = el('input', { id, type: 'range', min: 0, step: 1 }), output = el('output', { for: id });
  const label = el('label', { for: id });
  let steps = [];
  const show = () => {
    const text = field.text(steps[Number(input.value)] ?? '');
    output.textContent = text;
    input.setAttribute('aria-valuetext', text);
  };
  const refresh = () => {
    steps = stepsOf(field);
    label.textContent = nameOf(field);
    input.max = steps.length - 1;
    const at = steps.indexOf(valueOf(field));
    input.value = at < 0 ? steps.length - 1 : at;
    if (at < 0) asked[field.key] = steps.at(-1);
    show();
  };
  input.addEventListener('input', () => {
    asked[field.key] = steps[Number(input.value)];
    show();
    changed(field);
  });
  return { row: el('div', { class: 'field' }, label, output, input), refresh };
}

function list(field, changed) {
  const id = newId('control');
  const select = el('select', { id });
  const label = el('label', { for: id });
  const refresh = () => {
    const all = field.options(), value = valueOf(field);
    if (!all.some(([name]) => name === value)) all.push([value, value]);
    label.textContent = nameOf(field);
    select.replaceChildren(...all.map(([name, text]) => el('option', { value: name }, text)));
    select.value = value;
  };
  select.addEventListener('change', () => {
    asked[field.key] = select.value;
    changed(field);
  });
  return { row: el('div', { class: 'field' }, label, select), refresh };
}

// changed(): after any change, the controls being as they shall be.
function showControls(form, changed) {
  let into = form;
  const made = [];
  const refresh = () => {
    for (const { field, control } of made) {
      control.row.hidden = Boolean(field.shown && !field.shown());
      control.refresh();
    }
  };
  const follow = (field) => {
    // Another model has its own length, another cluster its own device and size.
    if (field.key === 'workload') delete asked.seq_len;
    if (field.key === 'cluster') delete asked.device;
    refresh();
    writeAddress();
    changed();
  };
  for (const field of fields) {
    if (field.heading) into.append(el('h2', {}, field.heading));
    if (field.more) {
      into = el('div');
      form.append(el('details', {}, el('summary', {}, field.more), into));
    }
    if (!field.key) continue;
    const control = (field.steps ? slider : list)(field, follow);
    made.push({ field, control });
    into.append(control.row);
  }
  form.addEventListener('submit', (event) => event.preventDefault());
  refresh();
  return refresh;
}
