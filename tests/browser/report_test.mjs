// The page of `orrery report` as people see it: all of it, in every light and width, by mouse and by keyboard alone.
import assert from 'node:assert/strict';
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { address, checkAccessible, checkKeyboard, checkQuiet, checkWidth, drawAll, folder, launch, looks, open, openAll, orrery, reportOf64Ranks } from './support.mjs';

const ranks64 = join(folder, '64.html'), all = join(folder, 'all.html');
let browser = null;

before(async () => {
  browser = await launch();
  reportOf64Ranks(ranks64);
  orrery('plan', 'mixtral-8x7b', 'dgx-h100', '--gpus', 16, '--global-batch', 64, '--precision', 'bf16', '--out', 'plan');
  // A file's name that would end the element which holds the report.
  const whatif = 'a<script>document.title="x"<!--.json';
  orrery('whatif', 'gpt2', 'dgx-a100', '--vary', 'nodes=1,2,4', '--global-batch', 512, '--tokens', '1e10', '--json', whatif);
  // What a validation says, without one: nothing here shall train.
  writeFileSync(join(folder, 'validate.json'), JSON.stringify({
    verb: 'validate', predicted_step_time_s: 0.11, measured_step_time_s: 0.1, relative_error: 0.1, steps: 5,
    by_kind: [{ kind: 'forward', predicted_s: 0.03, measured_s: 0.028, relative_error: 0.0714 }, { kind: 'backward', predicted_s: 0.07, measured_s: 0.066, relative_error: 0.0606 }],
    memory: { predicted_bytes: 3e9, measured_bytes: 2.9e9 }, measured: { median: 0.1, min: 0.09, max: 0.12 },
  }));
  // Two of a kind, too: what they are called must not be the same.
  orrery('report', 'plan', '64', whatif, whatif, 'validate.json', '--search', 'off', '--out', all);
});
after(() => browser?.close());

test('a plan that leaves its one device nearly empty shows what it holds', async () => {
  const file = join(folder, 'small.html');
  orrery('plan', 'gpt2-tiny', 'dgx-a100', '--gpus', 1, '--global-batch', 8, '--out', 'small');
  orrery('report', 'small', '--search', 'off', '--out', file);
  const { page, kept, close } = await open(browser, address(file));
  await page.waitForSelector('section');
  assert.match(await page.locator('.facts').innerText(), /1 device, 1 node\s+global batch 8\s+sequences of 128 tokens/);
  await drawAll(page);
  assert.match(await page.locator('section', { hasText: 'Memory over a step' }).last().innerText(), /The capacity, 79\.\d GiB, is far above/);
  // Less than the half of the picture is white: the scale is what the plan holds.
  const filled = await page.evaluate(() => {
    const canvas = allCharts.find((made) => made.box.getAttribute('aria-label').startsWith('Memory of a device')).box.querySelector('canvas');
    const pixels = new Uint32Array(canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data.buffer), counts = new Map();
    for (const pixel of pixels) counts.set(pixel, (counts.get(pixel) || 0) + 1);
    return 1 - Math.max(...counts.values()) / pixels.length;
  });
  assert.ok(filled > 0.4, `${filled} of the picture`);
  checkQuiet(kept, 'file:');
  await close();
});

for (const [look, options] of [...looks, ['projector', { viewport: { width: 2560, height: 1440 } }]]) {
  test(`every part is there, quiet, legible and in its place: ${look}`, async () => {
    const { page, kept, close } = await open(browser, address(all), options);
    await page.waitForSelector('section');
    const titles = await page.locator('h2').allTextContents();
    for (const part of ['The answer', 'Why', 'A step over time', 'Memory over a step', 'Links', 'What this rests on']) assert.ok(titles.some((title) => title.startsWith(part)), titles.join());
    assert.ok(titles.some((title) => title.startsWith('What if')));
    assert.ok(titles.some((title) => title.startsWith('Predicted and measured')));
    assert.equal(new Set(titles).size, titles.length, titles.join());
    assert.match(await page.title(), /^mixtral-8x7b/);
    assert.match(await page.locator('.scroll').filter({ hasText: 'Price of' }).first().innerText(), /list price.*us-east-1.*202\d/s);
    assert.equal(await page.evaluate(() => document.documentElement.dataset.theme), options.dark ? 'dark' : 'light');
    await drawAll(page);
    const empty = await page.evaluate(() => allCharts.filter((made) => {
      const canvas = made.box.querySelector('canvas'), colours = new Set(new Uint32Array(canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data.buffer));
      return colours.size < 4;
    }).map((made) => made.box.getAttribute('aria-label')));
    assert.deepEqual(empty, []);
    assert.ok(await page.evaluate(() => allCharts.length) >= 8);
    await openAll(page);
    await checkAccessible(page, look);
    await checkWidth(page, look);
    checkQuiet(kept, 'file:');
    assert.equal(kept.requests.length, 1);
    await close();
  });
}

test('the keyboard alone reaches everything, and charts say what they show', async () => {
  const { page, kept, close } = await open(browser, address(all));
  await drawAll(page);
  await checkKeyboard(page, 'report');
  const chart = page.getByRole('application').first();
  await chart.focus();
  await page.keyboard.press('ArrowRight');
  await page.waitForFunction(() => /rank 0.*(compute|input|recomputation)/.test(document.getElementById('said').textContent));
  const zoom = () => page.evaluate(() => { const now = allCharts.find((one) => one.box === document.activeElement).instance.getOption().dataZoom[0]; return [now.start, now.end]; });
  await page.keyboard.press('+');
  assert.deepEqual((await zoom()).map(Math.round), [25, 75]);
  await page.keyboard.press('Shift+ArrowRight');
  assert.ok((await zoom())[0] > 30);
  await page.keyboard.press('0');
  assert.deepEqual(await zoom(), [0, 100]);
  // A legend: one stop of Tab, arrows go on, Enter hides.
  const legend = page.getByRole('toolbar').first();
  await legend.getByRole('button').first().focus();
  await page.keyboard.press('ArrowRight');
  await page.keyboard.press('Enter');
  assert.equal(await legend.getByRole('button').nth(1).getAttribute('aria-pressed'), 'false');
  assert.ok(await page.evaluate(() => document.activeElement.getAttribute('aria-pressed') === 'false'));
  checkQuiet(kept, 'file:');
  await close();
});

test('hovering tells, and zooming tells what was joined apart', async () => {
  const { page, kept, close } = await open(browser, address(ranks64));
  const chart = page.getByRole('application').first();
  await chart.scrollIntoViewIfNeeded();
  await page.waitForFunction(() => allCharts.find((one) => /ranks spend/.test(one.box.getAttribute('aria-label'))).instance);
  const bars = () => page.evaluate(() => allCharts.find((one) => /ranks spend/.test(one.box.getAttribute('aria-label'))).instance.getOption().series.map((one) => one.data.length));
  const inFirst = (from, to) => page.evaluate(([low, high]) => {
    const option = allCharts.find((one) => /ranks spend/.test(one.box.getAttribute('aria-label'))).instance.getOption();
    const end = option.xAxis[0].max;
    return option.series.flatMap((one) => one.data).filter((bar) => bar[0] === 0 && bar[2] > low * end && bar[1] < high * end).length;
  }, [from, to]);
  const before = await inFirst(0.45, 0.55);
  const box = await chart.boundingBox();
  const at = [box.x + box.width / 2, box.y + 24];
  await page.mouse.move(at[0] - 4, at[1]);
  let told = '';
  for (let i = 0; i < 12 && !/rank 0.* from .* on/.test(told); i += 1) {
    await page.mouse.move(at[0] + 7 * i, at[1]);
    await page.waitForTimeout(60);
    told = (await page.locator('.chart > div').allTextContents()).find((text) => text.includes('rank')) || '';
  }
  assert.match(told, /rank 0.* from .* on/);
  await page.getByRole('button', { name: 'Zoom in' }).first().click();
  await page.getByRole('button', { name: 'Zoom in' }).first().click();
  await page.getByRole('button', { name: 'Zoom in' }).first().click();
  await page.waitForFunction((least) => {
    const option = allCharts.find((one) => /ranks spend/.test(one.box.getAttribute('aria-label'))).instance.getOption(), end = option.xAxis[0].max;
    return option.series.flatMap((one) => one.data).filter((bar) => bar[0] === 0 && bar[2] > 0.45 * end && bar[1] < 0.55 * end).length > least;
  }, 1.5 * before);
  assert.ok((await bars()).every((many) => many > 0));
  // The wheel with Ctrl.
  await page.mouse.move(at[0], at[1]);
  await page.keyboard.down('Control');
  await page.mouse.wheel(0, -300);
  await page.keyboard.up('Control');
  await page.waitForFunction(() => { const now = allCharts.find((one) => /ranks spend/.test(one.box.getAttribute('aria-label'))).instance.getOption().dataZoom[0]; return now.end - now.start < 12; });
  checkQuiet(kept, 'file:');
  await close();
});

test('what a rank spends its step on is as wide as it is long, however thin its pieces are', async () => {
  const { page, close } = await open(browser, address(ranks64));
  await drawAll(page);
  const shares = await page.evaluate(() => {
    const timeline = JSON.parse(document.getElementById('report').textContent).plans[0].timeline, option = allCharts.find((one) => /ranks spend/.test(one.box.getAttribute('aria-label'))).instance.getOption();
    const drawn = {}, told = {};
    for (const series of option.series) drawn[series.name] = series.data.filter((bar) => bar[0] === 0).reduce((sum, bar) => sum + bar[2] - bar[1], 0) / timeline.length_s;
    const numbers = timeline.rows[0].stretches;
    for (let i = 0; i < numbers.length; i += 3) told[partName(timeline.parts[numbers[i + 2]])] = (told[partName(timeline.parts[numbers[i + 2]])] || 0) + numbers[i + 1] / timeline.ticks;
    return { drawn, told };
  });
  for (const [part, share] of Object.entries(shares.told)) assert.ok(Math.abs(shares.drawn[part] - share) < 1e-6, `${part}: ${shares.drawn[part]} drawn, ${share} told`);
  assert.ok(shares.told[Object.keys(shares.told).find((part) => part.startsWith('bubble'))] > 0.01);
  await close();
});

test('nothing of the files is run as a script, and the page says what forbids requests', () => {
  const text = readFileSync(all, 'utf8');
  assert.ok(text.includes("default-src 'none'"));
  assert.ok(!text.includes('<script>document.title'));
});
