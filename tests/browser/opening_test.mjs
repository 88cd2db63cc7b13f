// How soon the page of `orrery report` is there: within a second on a processor that sorts two million numbers in a third of one. What
// a second is worth depends on the machine and on what else runs on it, so both are measured in the same process.
import assert from 'node:assert/strict';
import { statSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { address, folder, launch, open, reportOf64Ranks, sortTwoMillion } from './support.mjs';

const ranks64 = join(folder, '64.html');
let browser = null;

before(async () => {
  browser = await launch();
  reportOf64Ranks(ranks64);
});
after(() => browser?.close());

test('a page of 64 ranks has at most 3 MB and opens in three times what sorting two million numbers takes', async () => {
  assert.ok(statSync(ranks64).size <= 3e6, `${statSync(ranks64).size} bytes`);
  // What the page's process computes until it is read and drawn: what other tests take is not the page's.
  const took = [], waited = [], sorted = [];
  for (let i = 0; i < 3; i += 1) {
    const { page, close } = await open(browser, 'about:blank');
    const devtools = await page.context().newCDPSession(page);
    await devtools.send('Performance.enable', { timeDomain: 'threadTicks' });
    const computed = async () => (await devtools.send('Performance.getMetrics')).metrics.find((one) => one.name === 'ProcessTime').value;
    const from = await computed(), since = performance.now();
    await page.goto(address(ranks64), { waitUntil: 'commit' });
    await page.waitForFunction(() => document.querySelector('.tile .big') && document.querySelector('.chart canvas'), null, { polling: 10 });
    waited.push((performance.now() - since) / 1000);
    const opened = await computed();
    took.push(opened - from);
    await page.evaluate(sortTwoMillion);
    sorted.push(await computed() - opened);
    await close();
  }
  const ratios = took.map((s, i) => s / sorted[i]);
  const ms = (seconds) => seconds.map((s) => `${(1000 * s).toFixed(0)} ms`).join(', ');
  process.stdout.write(`# opened after ${ms(waited)}, computing ${ms(took)}; sorting ${ms(sorted)}\n`);
  assert.ok(Math.min(...took) > 0 && Math.min(...ratios) <= 3, ratios.join(', '));
});
