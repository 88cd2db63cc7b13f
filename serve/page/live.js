// Asks, and shows the answer as it comes: the first one quickly, then better ones; an older question is given up.
const kQuiet_ms = 120; // that controls must stand still
let asking = null, waiting = 0;

function progress(text, state = '') {
  const line = document.getElementById('progress');
  line.className = `progress ${state}`;
  document.getElementById('status').textContent = text;
}

// ---- cards: one that says what it said before stays as it is ----
const cards = new Map();
// As they stand on the page, whatever was asked before.
const cardOrder = ['The answer', 'A whole run', 'Why', 'A step over time', 'Memory over a step', 'Links', 'What this rests on'];

function dropCard(name) {
  const card = cards.get(name);
  if (!card) return;
  dropCharts(card.charts);
  card.element.remove();
  cards.delete(name);
}

function showCard(name, data, make) {
  const said = JSON.stringify(data), old = cards.get(name);
  if (old && old.said === said) {
    old.element.classList.remove('stale');
    return old.element;
  }
  const before = allCharts.length, id = old ? old.element.id : newId('part');
  const content = make().flat(2).filter(Boolean);
  const charts = allCharts.slice(before);
  const element = el('section', { class: 'card', id, 'aria-labelledby': `${id}-h` }, el('h2', { id: `${id}-h` }, name), content);
  if (old) {
    dropCharts(old.charts);
    old.element.replaceWith(element);
  } else {
    const next = cardOrder.slice(cardOrder.indexOf(name) + 1).find((later) => cards.has(later));
    if (next) cards.get(next).element.before(element);
    else document.getElementById('answer').append(element);
  }
  cards.set(name, { said, element, charts });
  watchCharts(charts);
  return element;
}

const drawnCards = ['A step over time', 'Memory over a step', 'Links'];
const without = (object, ...keys) => Object.fromEntries(Object.entries(object).filter(([key]) => !keys.includes(key)));

function showPlanLive(stage, plan) {
  const whole = ['timeline', 'memory', 'network', 'assumptions', 'links', 'load', 'busy_s', 'events', 'ranks', 'simulated_ranks', 'choices'];
  const name = 'The answer';
  showCard(name, without(plan, ...whole), () => answerSection(plan));
  showRun(plan, null);
  const stale = { guess: ['Why', 'What this rests on', ...drawnCards], searched: drawnCards, drawn: [] }[stage];
  for (const other of stale) cards.get(other)?.element.classList.add('stale');
  if (stage === 'guess') return;
  showCard('Why', [plan.why, plan.beside, plan.choices, plan.sensitivities], () => whySection(plan));
  if (stage === 'searched') return;
  showCard('A step over time', plan.timeline, () => timelineSection(plan));
  showCard('Memory over a step', plan.memory, () => memorySection(plan));
  const links = linksOf(plan);
  if (links) showCard('Links', plan.network, () => linksSection(plan));
  else dropCard('Links');
  showCard('What this rests on', plan.assumptions, () => assumptionsSection(plan));
}

const linksOf = (plan) => plan.network && plan.network.kinds && plan.network.kinds.length > 0;

// ---- a whole run ----
let shownPlan = null;

function runTiles(plan, run) {
  const amount = Number(valueOf(keyed.find((field) => field.key === 'amount')));
  const times2 = amount / plan.cost.amount, what = plan.cost.per;
  const low = plan.step_time_low_s / plan.step_time_s, high = plan.step_time_high_s / plan.step_time_s;
  const range = (value, form) => (Number.isFinite(low) ? `90% interval ${form(value * low)} to ${form(value * high)}` : '');
  const ideal = plan.cost.time_s * times2;
  const list = [tile(`${count(amount)} ${what} take`, seconds(run ? run.time_to_train_s.mean : ideal),
    run ? `90% interval ${seconds(run.days_low * 86400)} to ${seconds(run.days_high * 86400)}` : `if nothing ever fails; ${range(ideal, seconds)}`)];
  const cost = run ? run.cost_usd : plan.cost.usd && plan.cost.usd * times2;
  if (cost) list.push(tile('and cost', usd(cost), run && run.usd_low !== undefined ? `90% interval ${usd(run.usd_low)} to ${usd(run.usd_high)}` : range(cost, usd)));
  const energy_j = run ? run.energy_j : plan.cost.energy_j && plan.cost.energy_j * times2;
  if (energy_j) list.push(tile('and use', energy(energy_j), 'devices and hosts'));
  if (run) {
    list.push(tile('Goodput', percent(run.goodput), `of the time counts; ${count(run.interruptions.mean)} interruptions, one every ${seconds(run.mtti_s)}; supposed: ${seconds(run.detect_s)} until one is noticed, ${seconds(run.restart_s)} to start again`),
      tile('A checkpoint', `every ${numbered(run.checkpoint_every_steps, 'step')}`, `it stops training for ${seconds(run.checkpoint_s)}; Young’s rule says every ${seconds(run.closed_form.young_interval_s)}`));
  }
  return el('dl', { class: 'tiles' }, list);
}

const lostNames = { checkpoint: 'writing checkpoints', rework: 'computing again', detect: 'noticing failures', restart: 'starting again', wait: 'waiting for a node', degraded: 'on fewer nodes' };

function lostTable(run) {
  const rows = Object.entries(run.lost_s).filter(([, lost]) => lost > 0).map(([part, lost]) => [lostNames[part] || part, seconds(lost), percent(lost / run.time_to_train_s.mean, 2)]);
  return rows.length > 0 && tableOf(['lost to', 'time', 'of the run'], rows, { label: 'What a run loses' });
}

function showRun(plan, run) {
  shownPlan = plan;
  showCard('A whole run', [plan.step_time_s, plan.cost, run, valueOf(keyed.find((field) => field.key === 'amount'))], () => [
    runTiles(plan, run),
    run && lostTable(run),
    run && run.alternatives.length > 0 && tableOf(['~with', 'goodput', 'time'], run.alternatives.map((one) => [one.change, percent(one.goodput), seconds(one.time_to_train_s)]), { label: 'Other choices' }),
  ]);
}

// ---- asking ----
const stageText = {
  guess: 'by the closed form; searching …', searched: 'searched and simulated; drawing …', drawn: 'searched, simulated and drawn', run: 'with a whole run simulated',
};

function wrong(text) {
  progress(text, 'wrong');
  say(text);
  for (const card of cards.values()) card.element.classList.add('stale');
}

function take(line, since, state) {
  if (line.plan) {
    showPlanLive(line.stage, line.plan);
    state.last = line;
    if (line.stage === 'searched') say(`A step takes ${seconds(line.plan.step_time_s)}: ${line.plan.words}`);
  }
  if (line.stage === 'run') showRun(shownPlan, line.run);
  if (stageText[line.stage]) progress(`${line.stage === 'guess' ? 'First answer' : 'Answer'} after ${seconds((performance.now() - since) / 1000)}: ${stageText[line.stage]}`, 'busy');
  if (line.text) {
    state.failed = true;
    wrong(line.text);
  }
  if (line.stage === 'done') {
    state.done = true;
    if (!state.failed) document.getElementById('progress').className = 'progress';
  }
}

async function lines(response, each) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = '';
  for (;;) {
    const { value, done } = await reader.read();
    if (done) break;
    const parts = (rest + value).split('\n');
    rest = parts.pop();
    for (const part of parts) each(JSON.parse(part));
  }
}

async function ask() {
  if (asking) asking.abort();
  asking = new AbortController();
  const mine = asking, since = performance.now(), state = {};
  progress('Asking …', 'busy');
  try {
    const response = await fetch(`/answer?${question()}`, { signal: mine.signal });
    if (response.status === 503) {
      waiting = setTimeout(ask, 1000);
      return;
    }
    if (!response.ok) {
      wrong((await response.text()).trim());
      return;
    }
    await lines(response, (line) => { if (mine === asking) take(line, since, state); });
    if (mine === asking && !state.done && !state.failed) wrong('The answer broke off.');
  } catch (error) {
    if (mine === asking && error.name !== 'AbortError') wrong(`The server does not answer: ${error.message}`);
  }
}

function askSoon() {
  clearTimeout(waiting);
  waiting = setTimeout(ask, kQuiet_ms);
}

async function begin() {
  followTheme();
  keepCharts();
  document.getElementById('made').textContent = 'Made by Orrery on this machine. Charts by Apache ECharts (Apache License 2.0).';
  const copy = document.getElementById('copy');
  copy.addEventListener('click', async () => {
    await navigator.clipboard.writeText(window.location.href);
    say('The link is copied');
  });
  choices = await (await fetch('/choices')).json();
  readAddress();
  const refresh = showControls(document.getElementById('controls'), askSoon);
  window.addEventListener('popstate', () => {
    readAddress();
    refresh();
    ask();
  });
  showTabs(ask);
}
begin();
