// The live page of `orrery serve`: what it asks, shows and says, on every tab, by mouse and by keyboard alone, in several windows at once.
import assert from 'node:assert/strict';
import process from 'node:process';
import { after, before, test } from 'node:test';
import { checkAccessible, checkKeyboard, checkQuiet, checkWidth, drawAll, launch, looks, open, openAll, phone, serve, sortTwoMillion } from './support.mjs';

const small = '/?workload=gpt2&cluster=dgx-a100&gpus=8&global_batch=64&seq_len=512&amount=1e9';
let browser = null, server = null;
before(async () => { [browser, server] = await Promise.all([launch(), serve()]); });
after(async () => {
  await browser?.close();
  server?.stop();
});

const answered = (page) => page.waitForFunction(() => document.querySelectorAll('#answer section').length > 4 && ['progress', 'progress wrong'].includes(document.getElementById('progress').className.trim()));
// With its charts drawn: their legends are words of the page, too.
async function answer(page) {
  await drawAll(page);
  return page.locator('#answer').textContent();
}

async function at(target, options) {
  const shown = await open(browser, server.url + target, options);
  await answered(shown.page);
  assert.equal(await shown.page.locator('#progress').getAttribute('class').then((text) => text.trim()), 'progress', await shown.page.locator('#status').textContent());
  return shown;
}

async function learn(options) {
  const shown = await open(browser, `${server.url}/#learn`, options);
  const lessons = shown.page.locator('.lesson');
  await lessons.first().waitFor();
  for (let i = 0; i < await lessons.count(); i += 1) {
    await lessons.nth(i).scrollIntoViewIfNeeded();
    await shown.page.waitForFunction((one) => document.querySelectorAll('.lesson')[one].dataset.state === 'told', i);
  }
  return shown;
}

for (const [look, options] of looks) {
  test(`Plan: every part is there, quiet, legible and in its place: ${look}`, async () => {
    const { page, kept, close } = await at(`${small}&mtbf_device_hours=5e4`, options);
    const titles = await page.locator('#answer h2').allTextContents();
    for (const part of ['The answer', 'A whole run', 'Why', 'A step over time', 'Memory over a step', 'Links', 'What this rests on']) assert.ok(titles.includes(part), titles.join());
    await drawAll(page);
    await openAll(page);
    await checkAccessible(page, look);
    await checkWidth(page, look);
    checkQuiet(kept, server.url);
    await close();
  });
  test(`Learn: every lesson is told, quiet, legible and in its place: ${look}`, async () => {
    const { page, kept, close } = await learn(options);
    assert.equal(await page.locator('.lesson').count(), 6);
    assert.equal(await page.evaluate(() => document.documentElement.dataset.theme), options.dark ? 'dark' : 'light');
    await drawAll(page);
    assert.deepEqual(await page.evaluate(() => [...document.querySelectorAll('.lesson')].filter((one) => !one.querySelector('canvas')).map((one) => one.id)), []);
    await openAll(page);
    await checkAccessible(page, look);
    await checkWidth(page, look);
    checkQuiet(kept, server.url);
    await close();
  });
}

test('the keyboard alone reaches everything on every tab', async () => {
  const plan = await at(small);
  await openAll(plan.page);
  await drawAll(plan.page);
  await checkKeyboard(plan.page, 'Plan');
  const chart = plan.page.getByRole('application', { name: /ranks spend/ });
  await chart.focus();
  await plan.page.keyboard.press('ArrowRight');
  await plan.page.waitForFunction(() => /rank 0.*(compute|input|recomputation)/.test(document.getElementById('said').textContent));
  // From tab to tab by arrows.
  await plan.page.locator('#tab-plan').focus();
  await plan.page.keyboard.press('ArrowRight');
  await plan.page.locator('.lesson').first().waitFor();
  assert.equal(await plan.page.locator('#tab-learn').getAttribute('aria-selected'), 'true');
  assert.ok(await plan.page.locator('#plan').isHidden());
  checkQuiet(plan.kept, server.url);
  await plan.close();
  const lessons = await learn();
  await drawAll(lessons.page);
  await checkKeyboard(lessons.page, 'Learn');
  checkQuiet(lessons.kept, server.url);
  await lessons.close();
});

test('controls move the answer, older questions are given up, and the address is the question', async () => {
  const { page, kept, close } = await at(small);
  const given = [];
  page.on('requestfailed', (request) => given.push(request.failure().errorText));
  const first = await page.locator('#answer .tile .big').first().textContent();
  // A long question, which the next ones do not wait for.
  await page.getByLabel('Model', { exact: true }).selectOption('llama3-405b');
  await page.waitForTimeout(300);
  await page.getByLabel('Model', { exact: true }).selectOption('gpt2');
  await page.waitForTimeout(300);
  await page.getByLabel('Global batch').focus();
  for (let i = 0; i < 3; i += 1) await page.keyboard.press('ArrowRight');
  await page.waitForFunction(() => window.location.search.includes('global_batch=512'));
  await page.waitForFunction((old) => document.querySelector('#answer .tile .big').textContent !== old, first);
  // Answers to the questions in between may come first.
  await page.waitForFunction(() => document.getElementById('answer').textContent.includes('global batch 512'));
  await answered(page);
  assert.ok(given.length >= 1, 'no question was given up');
  assert.ok(given.every((text) => text === 'net::ERR_ABORTED'), given.join());
  const link = page.url(), told = await answer(page);
  assert.match(told, /global batch 512/);
  checkQuiet(kept, server.url);
  await close();
  // The link says the same in a window of its own.
  const again = await at(link.slice(server.url.length));
  assert.equal(await answer(again.page), told);
  await again.close();
});

test('counts in the controls have all their digits', async () => {
  const { page, close } = await open(browser, `${server.url}/?workload=gpt2&cluster=dgx-a100&gpus=16384&global_batch=65536&seq_len=131072`);
  await page.waitForFunction(() => document.querySelectorAll('output').length > 3);
  const shown = await page.locator('output').allTextContents();
  for (const text of ['16,384 (2,048 nodes)', '65,536', '131,072']) assert.ok(shown.includes(text), shown.join());
  await close();
});

test('Copy link copies the question', async () => {
  const { page, close } = await at(small);
  await page.context().grantPermissions(['clipboard-read', 'clipboard-write']);
  await page.getByRole('button', { name: 'Copy link' }).click();
  await page.waitForFunction(() => document.getElementById('said').textContent === 'The link is copied');
  assert.equal(await page.evaluate(() => navigator.clipboard.readText()), page.url());
  await close();
});

test('what cannot be is said, and the last answer stays, faded', async () => {
  const { page, kept, close } = await at(small);
  await page.locator('summary', { hasText: 'More: the plan' }).click();
  await page.getByLabel('Tensor parallel').selectOption('64');
  await page.locator('#progress.wrong').waitFor();
  assert.match(await page.locator('#status').textContent(), /tp/);
  assert.ok(await page.locator('#answer section.stale').count() > 3);
  await checkAccessible(page, 'wrong');
  checkQuiet(kept, server.url);
  await close();
});

test('several windows ask at once, and each gets its own answer', async () => {
  const batches = [64, 128, 256];
  const windows = await Promise.all(batches.map((batch) => at(small.replace('global_batch=64', `global_batch=${batch}`))));
  for (const [i, shown] of windows.entries()) {
    assert.match(await answer(shown.page), new RegExp(`global batch ${batches[i]}(?!\\d)`));
    checkQuiet(shown.kept, server.url);
    await shown.close();
  }
});

test('no request leaves, whatever a script on the page asks for', async () => {
  const { page, kept, close } = await at(small);
  assert.equal(await page.evaluate(() => fetch('http://127.0.0.1:9/').then(() => 'left', () => 'stayed')), 'stayed');
  assert.ok(kept.complaints.length > 0 && kept.complaints.every((text) => text.includes('Content Security Policy')), kept.complaints.join());
  await close();
});

test('hovering tells, zooming zooms, the button changes the light', async () => {
  const { page, kept, close } = await at(small);
  const chart = page.getByRole('application', { name: /ranks spend/ });
  await chart.scrollIntoViewIfNeeded();
  await page.waitForFunction(() => allCharts.find((one) => /ranks spend/.test(one.box.getAttribute('aria-label'))).instance);
  const box = await chart.boundingBox();
  let told = '';
  for (let i = 0; i < 12 && !/rank 0.* from .* on/.test(told); i += 1) {
    await page.mouse.move(box.x + box.width * (0.3 + 0.05 * i), box.y + 24);
    await page.waitForTimeout(60);
    told = (await page.locator('.chart > div').allTextContents()).find((text) => text.includes('rank')) || '';
  }
  assert.match(told, /rank 0.* from .* on/);
  await page.getByRole('button', { name: 'Zoom in' }).first().click();
  const zoom = () => page.evaluate(() => { const now = allCharts.find((one) => /ranks spend/.test(one.box.getAttribute('aria-label'))).instance.getOption().dataZoom[0]; return Math.round(now.end - now.start); });
  assert.equal(await zoom(), 50);
  await page.getByRole('button', { name: 'Change between light and dark' }).click();
  assert.equal(await page.evaluate(() => document.documentElement.dataset.theme), 'dark');
  assert.equal(await zoom(), 50); // another light is the same place
  checkQuiet(kept, server.url);
  await close();
});

test('lessons follow their sliders', async () => {
  const { page, kept, close } = await learn(phone);
  const slide = (lesson, name, value) => page.locator(`#lesson-${lesson}`).getByLabel(name, { exact: true }).evaluate((input, to) => {
    input.value = to;
    input.dispatchEvent(new Event('input', { bubbles: true }));
  }, value);
  const full = () => page.locator('#lesson-ring td.full').count();
  // A ring of four ranks: after half of its steps everybody has one sum, after the last one every sum.
  assert.equal(await full(), 0);
  await slide('ring', 'Step', 3);
  assert.equal(await full(), 4);
  await slide('ring', 'Step', 6);
  assert.equal(await full(), 16);
  await slide('bubbles', 'Micro-batches m', 3);
  await page.waitForFunction(() => document.querySelector('#lesson-bubbles').dataset.state === 'told' && document.querySelector('#lesson-bubbles .told').textContent.includes('the formula says 9.4%'));
  checkQuiet(kept, server.url);
  await close();
});

test('a warm server answers Llama 3 70B on 512 devices sooner than two million numbers are sorted, then better', async () => {
  const { page, close } = await open(browser, `${server.url}/live.css`);
  const firsts = [], lasts = [], sorts = [];
  for (let batch = 512; batch < 512 + 8 * 64; batch += 64) { // each is asked for the first time
    const began = performance.now();
    sortTwoMillion();
    sorts.push(performance.now() - began);
    const [first, last, stage] = await page.evaluate(async (size) => {
      const since = performance.now(), response = await fetch(`/answer?workload=llama3-70b&cluster=dgx-h100&gpus=512&global_batch=${size}`);
      const reader = response.body.getReader();
      let text = '', at = 0;
      for (;;) {
        const { value, done } = await reader.read();
        if (done) break;
        text += new TextDecoder().decode(value);
        if (at === 0 && text.includes('\n')) at = performance.now() - since;
      }
      return [at, performance.now() - since, JSON.parse(text.split('\n')[0]).stage];
    }, batch);
    assert.equal(stage, 'guess');
    firsts.push(first);
    lasts.push(last);
  }
  const ms = (times) => times.map((one) => one.toFixed(0)).join(', ');
  process.stdout.write(`# first answers after ${ms(firsts)} ms, last ones after ${ms(lasts)} ms, sorting ${ms(sorts)} ms\n`);
  assert.ok(Math.min(...firsts.map((one, i) => one / sorts[i])) <= 1, `${ms(firsts)} ms, and ${ms(sorts)} ms for sorting`);
  await close();
});
