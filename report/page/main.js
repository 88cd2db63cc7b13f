// Puts the page together. Of parts of one name, each after the first has its number.
const cardNames = new Map();

function card(contents, main, title, children, shortName) {
  const id = newId('part'), before = cardNames.get(title) || 0, name = before === 0 ? title : `${title} (${before + 1})`;
  const list = children.flat().filter(Boolean);
  if (list.length === 0) return;
  cardNames.set(title, before + 1);
  contents.append(el('li', {}, el('a', { href: `#${id}` }, shortName || name)));
  main.append(el('section', { class: 'card', id, 'aria-labelledby': `${id}-h` }, el('h2', { id: `${id}-h` }, name), list));
}

function assumptionsSection(plan) {
  const rows = plan.assumptions.map((one) => [one.what, one.value, one.rests_on || '', one.source || '']);
  return [el('p', {}, 'What the figures rest on, and where each is from.'), tableOf(['~what', '~value', '~rests on', '~source'], rows, { label: 'Assumptions' })];
}

function showPlan(plan, contents, main, many) {
  const of = many ? ` (${plan.workload}, ${plan.devices} devices)` : '';
  card(contents, main, `The answer${of}`, answerSection(plan));
  card(contents, main, `Why${of}`, whySection(plan));
  card(contents, main, `A step over time${of}`, timelineSection(plan), 'Timeline');
  card(contents, main, `Memory over a step${of}`, memorySection(plan), 'Memory');
  card(contents, main, `Links${of}`, linksSection(plan));
  card(contents, main, `What this rests on${of}`, assumptionsSection(plan), 'Assumptions');
}

function showReport(report) {
  const main = document.getElementById('main'), contents = el('ul');
  document.getElementById('contents').append(contents);
  for (const plan of report.plans) showPlan(plan, contents, main, report.plans.length > 1);
  for (const whatif of report.whatifs) card(contents, main, `What if: ${Object.entries(whatif.varied).map(([key, values]) => `${key} ${values.join(', ')}`).join('; ') || whatif.file}`, whatifSection(whatif), 'What if');
  for (const validation of report.validations) card(contents, main, `Predicted and measured: ${validation.file}`, validationSection(validation), 'Measured');
  for (const published of report.published) card(contents, main, `Published measurements: ${published.file}`, publishedSection(published), 'Published');
  document.getElementById('made').textContent = `Made by Orrery ${report.version}. Charts by Apache ECharts (Apache License 2.0).`;
  watchCharts(allCharts);
  keepCharts();
}

// Light or dark as the system says, and by the button.
function followTheme() {
  const dark = window.matchMedia('(prefers-color-scheme: dark)');
  setTheme(dark.matches ? 'dark' : 'light');
  dark.addEventListener('change', (event) => setTheme(event.matches ? 'dark' : 'light'));
  document.getElementById('theme').addEventListener('click', () => setTheme(themeName === 'dark' ? 'light' : 'dark'));
}
