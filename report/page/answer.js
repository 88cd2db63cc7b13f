// The answer of a plan, and where its step's time goes beside other plans.
function gauge(low, value, high, most, label) {
  const at = (x) => `${Math.min(100, Math.max(0, 100 * x / most))}%`;
  return el('div', { class: 'gauge', role: 'img', 'aria-label': label },
    el('span', { style: `left:${at(low)};right:calc(100% - ${at(high)})` }), el('i', { style: `left:${at(value)}` }));
}

function tile(name, big, small, more) {
  return el('div', { class: 'tile' }, el('dt', {}, name), el('dd', {}, el('div', { class: 'big' }, big), more, el('div', { class: 'small' }, small)));
}

function memoryTile(plan) {
  const memory = plan.memory_bytes;
  const low = plan.memory_low_bytes ?? memory.total, high = plan.memory_high_bytes ?? memory.total;
  return tile('Memory of the fullest device', bytes(memory.total),
    `of ${bytes(memory.capacity)}${plan.fit_probability === undefined ? '' : `; fits with ${percent(plan.fit_probability, 0)} probability`}`,
    gauge(low, memory.total, high, memory.capacity, `from ${bytes(low)} to ${bytes(high)} of ${bytes(memory.capacity)}`));
}

function stepTile(plan) {
  const step = plan.step_time_s, low = plan.step_time_low_s, high = plan.step_time_high_s;
  if (low === undefined) return tile('One step takes', seconds(step), 'as simulated');
  return tile('One step takes', seconds(step), `90% interval ${seconds(low)} to ${seconds(high)}`,
    gauge(low, step, high, high * 1.1, `from ${seconds(low)} to ${seconds(high)}`));
}

function costTile(plan) {
  const cost = plan.cost;
  const amount = `${count(cost.amount)} ${cost.per}`;
  const low = plan.step_time_low_s / plan.step_time_s, high = plan.step_time_high_s / plan.step_time_s;
  const sure = Number.isFinite(low) ? (value, form) => ` (${form(value * low)} to ${form(value * high)})` : () => '';
  if (cost.usd === undefined) return tile(`${amount} take`, seconds(cost.time_s), `${counted.format(cost.device_hours)} device hours${sure(cost.time_s, seconds)}; no price is stated`);
  return tile(`${amount} cost`, usd(cost.usd), `${seconds(cost.time_s)}${sure(cost.usd, usd)}, at ${usd(cost.usd_per_hour)} an hour`);
}

function answerSection(plan) {
  const training = plan.training;
  const rateTile = plan.tokens_per_s > 0
    ? tile('Throughput', `${count(plan.tokens_per_s)} tokens/s`, `${counted.format(plan.model_tflops_per_gpu)} TFLOP/s per device, ${percent(plan.mfu)} MFU`)
    : tile('Throughput', `${count(plan.samples_per_s)} samples/s`, `${counted.format(plan.model_tflops_per_gpu)} TFLOP/s per device, ${percent(plan.mfu)} MFU`);
  const facts = [
    `${count(plan.parameters)} parameters`, `${numbered(plan.devices, 'device')}, ${numbered(plan.nodes, 'node')}`,
    `global batch ${exact(training.global_batch)}`, training.seq_len > 0 && `sequences of ${exact(training.seq_len)} tokens`, training.precision,
    training.optimizer, `software ${plan.runtime}`, plan.bound_by && `bound by ${plan.bound_by}`,
  ].filter(Boolean);
  return [
    el('p', {}, el('strong', {}, plan.words)),
    el('dl', { class: 'tiles' }, stepTile(plan), rateTile, memoryTile(plan), costTile(plan)),
    el('ul', { class: 'facts' }, facts.map((fact) => el('li', {}, fact))),
    (plan.warnings || []).map((text) => el('p', { class: 'warning' }, text)),
    plan.rests_on_words && el('p', {}, 'This rests on ', plan.rests_on_words, '.'),
    plan.search && el('p', { class: 'soft' }, plan.search.refusal ? `The search finds no other plan: ${plan.search.refusal}`
      : `${plan.search.answer ? 'It is the search’s answer' : 'It is not the search’s answer'}: ${exact(plan.search.candidates)} candidates, ${plan.search.proven ? 'proven best under this model' : `best found, within ${percent(plan.search.gap)} of the bound`}.`),
  ];
}

function whySection(plan) {
  const changes = (plan.sensitivities || []).filter((change) => change.saves >= 0.0005);
  return [
    plan.why && sentences(plan.why),
    !plan.why && changes.length > 0 && el('p', {}, 'What other hardware would save of the step, by the closed form: ',
      changes.map((change) => `${change.change} ${percent(change.saves)}`).join('; '), '.'),
    besideChart(plan).figure,
    besideTable(plan),
    choicesChart(plan),
  ];
}

const shownName = (one) => (one.name ? `${one.label}: ${one.name}` : one.label);

function besideChart(plan) {
  const beside = plan.beside;
  const parts = Object.keys(beside[0].breakdown_s).filter((part) => beside.some((one) => one.breakdown_s[part] > 1e-4 * one.step_time_s));
  const text = (one, part) => `${shownName(one)}: ${partName(part)} ${seconds(one.breakdown_s[part])}, ${percent(one.breakdown_s[part] / one.step_time_s)} of the step`;
  return chart({
    label: `Where the time of a step goes, beside ${beside.length - 1} other plans`,
    caption: 'A step of the rank with most compute, each instant counted once: communication is what computation waits for.',
    height: 60 + 52 * beside.length,
    walk: () => parts.map(() => beside.length),
    tell: (part, one, made) => { showPoint(made, part, one); return text(beside[one], parts[part]); },
    option: () => ({
      grid: { left: 20, right: 24, top: 8, bottom: 8, containLabel: true }, legend: {},
      tooltip: { trigger: 'item', formatter: (at) => escaped(text(beside[at.dataIndex], parts[at.seriesIndex])) },
      xAxis: axis({ type: 'value', axisLabel: { formatter: timeTick } }),
      yAxis: axis({ type: 'category', inverse: true, data: beside.map((one) => one.label) }),
      series: parts.map((part) => ({
        name: partName(part), type: 'bar', stack: 'step', barMaxWidth: 36, itemStyle: { color: partColour(part) },
        data: beside.map((one) => one.breakdown_s[part]),
      })),
    }),
    table: [['of a step', ...beside.map((one) => one.label)], parts.map((part) => [partName(part), ...beside.map((one) => seconds(one.breakdown_s[part]))])],
  });
}

function besideTable(plan) {
  const sure = (one) => (one.step_time_low_s === undefined ? '' : `${seconds(one.step_time_low_s)} to ${seconds(one.step_time_high_s)}`);
  const rows = plan.beside.map((one) => [one.label, seconds(one.step_time_s), sure(one), percent(one.mfu), bytes(one.memory_bytes.total),
    one.fit_probability === undefined ? '' : percent(one.fit_probability, 0), one.words, one.name ? `${one.name}: ${one.source}` : '']);
  return tableOf(['plan', 'step', '90% interval', 'MFU', 'memory', 'fits with', '~what', '~from'], rows, { chosen: 0, label: 'The plan beside others' });
}

function choicesChart(plan) {
  const choices = plan.choices || [];
  if (choices.length < 2) return null;
  const text = (one) => `${one.words}: ${seconds(one.step_time_s)} a step (${seconds(one.step_time_low_s ?? one.step_time_s)} to ${seconds(one.step_time_high_s ?? one.step_time_s)}), ${bytes(one.memory_bytes.total)}${one.usd_per_step ? `, ${usd(one.usd_per_step)} a step` : ''}`;
  const low = (one) => one.step_time_low_s ?? one.step_time_s, high = (one) => one.step_time_high_s ?? one.step_time_s;
  const data = choices.map((one, at) => [one.step_time_s, at, low(one), high(one)]);
  return chart({
    label: 'Time and memory of the plans that the search ranks',
    caption: 'The plans that the search ranks, best first: time of a step with the interval of 90%; beside it what it is and the memory of its fullest device.',
    height: () => 56 + (window.innerWidth < 700 ? 30 : 40) * choices.length,
    walk: () => [choices.length],
    tell: (series, at, made) => { showPoint(made, 1, at); return text(choices[at]); },
    option: () => ({
      grid: { left: 8, right: 30, top: 8, bottom: 28, containLabel: true },
      tooltip: { trigger: 'item', formatter: (at) => escaped(text(choices[at.dataIndex])), extraCssText: 'max-width:26rem;white-space:normal' },
      xAxis: roundTimeAxis(Math.min(...choices.map(low)), Math.max(...choices.map(high))),
      yAxis: axis({ type: 'category', inverse: true, data: choices.map((one, at) => String(at + 1)), splitLine: { show: false } }),
      series: [
        whiskers('90%', data, palette().soft, true),
        {
          name: 'plan', type: 'scatter', symbolSize: 12, data, itemStyle: { color: palette().series[0] },
          label: {
            show: window.innerWidth >= 700, position: 'top', distance: 3, color: palette().ink, fontSize: letters(11),
            formatter: (at) => `${choices[at.dataIndex].words}: ${bytes(choices[at.dataIndex].memory_bytes.total)}`,
          },
        },
      ],
    }),
    table: [['~plan', 'step', '90% interval', 'memory'], choices.map((one) => [one.words, seconds(one.step_time_s), `${seconds(one.step_time_low_s ?? one.step_time_s)} to ${seconds(one.step_time_high_s ?? one.step_time_s)}`, bytes(one.memory_bytes.total)])],
  }).figure;
}
