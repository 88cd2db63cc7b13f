// What the suites of pages share: Debian's Chromium by playwright-core, `orrery` and its server, axe-core, and what any page must keep.
import assert from 'node:assert/strict';
import { execFileSync, spawn } from 'node:child_process';
import { existsSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import process from 'node:process';
import { pathToFileURL } from 'node:url';

const packages = process.env.ORRERY_BROWSER_PACKAGES; // a folder with node_modules
const chromiumFile = ['/usr/bin/chromium', '/usr/bin/chromium-browser'].find(existsSync);

// Where they are missing nothing can be tested: 77 says so to ctest, unless it is CI, where nothing may be missing.
function missing(what) {
  process.stderr.write(`skipped: there is no ${what} (scripts/install.sh, then the test "browser: packages")\n`);
  process.exit(process.env.CI === 'true' ? 1 : 77);
}
if (!chromiumFile) missing('chromium');
if (!packages || !existsSync(join(packages, 'node_modules/playwright-core'))) missing('playwright-core');
const packaged = createRequire(join(packages, 'package.json'));
const { chromium } = packaged('playwright-core');
const axeSource = readFileSync(packaged.resolve('axe-core/axe.min.js'), 'utf8');

export const folder = mkdtempSync(join(tmpdir(), 'orrery-browser-'));
process.on('exit', () => rmSync(folder, { recursive: true, force: true }));
// No calibration of the machine that runs the tests may reach them.
const environment = { ...process.env, ORRERY_DATA_DIR: join(folder, 'data'), HOME: folder };

export function orrery(...words) {
  return execFileSync(process.env.ORRERY, words.map(String), { cwd: folder, env: environment, encoding: 'utf8', stdio: ['ignore', 'pipe', 'pipe'], maxBuffer: 1 << 28 });
}

// A report of many ranks, into that file; its plan is `64`.
export function reportOf64Ranks(file) {
  orrery('plan', 'gpt3-175b', 'dgx-a100', '--gpus', 64, '--global-batch', 256, '--seq-len', 2048, '--precision', 'bf16', '--out', '64');
  orrery('report', '64', '--out', file);
}

export const address = (file) => pathToFileURL(file).href;

// The address of a server of its own, and what ends it.
export async function serve() {
  const server = spawn(process.env.ORRERY, ['serve', '--port', '0'], { cwd: folder, env: environment, stdio: ['ignore', 'pipe', 'inherit'] });
  const url = await new Promise((done, failed) => {
    let said = '';
    server.stdout.on('data', (piece) => {
      said += piece;
      const found = said.match(/^(http:\/\/127\.0\.0\.1:\d+)\/ /);
      if (found) done(found[1]);
    });
    server.on('exit', () => failed(new Error(`the server ended: ${said}`)));
  });
  return { url, stop: () => server.kill('SIGINT') };
}

// Chromium as root in a container, asking nothing of anybody.
export async function launch() {
  return chromium.launch({
    executablePath: chromiumFile,
    args: ['--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run', '--disable-background-networking', '--disable-component-update', '--disable-sync', '--disable-dev-shm-usage'],
  });
}

const wide = { viewport: { width: 1280, height: 900 } };
export const phone = { viewport: { width: 390, height: 844 }, isMobile: true, hasTouch: true, deviceScaleFactor: 2 };

// What every part is looked at in; with ORRERY_SHORT set (test.sh: in CI) both lights and both sizes, but not each with each.
export const looks = [['light', wide], ['dark', { ...wide, dark: true }], ['phone', phone], ['dark phone', { ...phone, dark: true }]]
  .filter(([look]) => !process.env.ORRERY_SHORT || ['light', 'dark phone'].includes(look));

// A page in a window of its own; `kept` has what it says on its console, what it raises, and what it asks for.
export async function open(browser, url, { dark = false, ...options } = wide) {
  const context = await browser.newContext({ reducedMotion: 'reduce', ...options, colorScheme: dark ? 'dark' : 'light' });
  const page = await context.newPage();
  page.setDefaultTimeout(60_000);
  const kept = { complaints: [], requests: [] };
  page.on('console', (message) => { if (['error', 'warning', 'assert'].includes(message.type())) kept.complaints.push(message.text()); });
  page.on('pageerror', (error) => kept.complaints.push(String(error)));
  page.on('request', (request) => kept.requests.push(request.url()));
  await page.goto(url);
  return { page, kept, close: () => context.close() };
}

// Nothing said, and nothing asked but of `home`.
export function checkQuiet(kept, home) {
  assert.deepEqual(kept.complaints, []);
  assert.deepEqual(kept.requests.filter((url) => !url.startsWith(home) && !url.startsWith('data:')), []);
}

// Everything that can be opened is open.
export const openAll = (page) => page.evaluate(() => { for (const one of document.querySelectorAll('details')) one.open = true; });

// Every chart drawn, as if somebody had scrolled past all of them.
export async function drawAll(page) {
  await page.evaluate(() => { for (const made of allCharts) if (made.box.offsetParent && !made.instance) made.draw(); });
}

// By axe-core, with all of its rules but the experimental ones.
export async function checkAccessible(page, where) {
  if (!await page.evaluate(() => 'axe' in window)) await page.evaluate(axeSource);
  const found = await page.evaluate(() => axe.run(document, { resultTypes: ['violations'] }));
  assert.deepEqual(found.violations.map((one) => `${one.id}: ${one.help}: ${one.nodes.slice(0, 3).map((node) => `${node.target} ${node.any.concat(node.all, node.none)[0]?.message ?? ''}`).join(' | ')}`), [], where);
}

// Nothing reaches beyond the window's width: neither the page nor a part of it that does not scroll by itself.
export async function checkWidth(page, where) {
  const over = await page.evaluate(() => {
    const wide = document.documentElement.clientWidth;
    const scrolls = (one) => { for (let up = one; up && up !== document.body; up = up.parentElement) if (['auto', 'scroll', 'hidden'].includes(getComputedStyle(up).overflowX)) return true; return false; };
    const beyond = [...document.body.querySelectorAll('*')].filter((one) => one.checkVisibility() && one.getBoundingClientRect().right > wide + 1 && !scrolls(one) && one.getBoundingClientRect().right > 0 && getComputedStyle(one).position !== 'absolute');
    return { page: document.documentElement.scrollWidth - wide, parts: beyond.slice(0, 5).map((one) => `${one.tagName} ${one.className} ${one.textContent.slice(0, 60)}`) };
  });
  assert.deepEqual(over, { page: 0, parts: [] }, where);
}

// Presses Tab until focus has gone round: everything that can be acted on was reached, and could be seen to have the focus.
export async function checkKeyboard(page, where) {
  const wanted = await page.evaluate(() => {
    if (document.activeElement) document.activeElement.blur();
    const roving = (one) => one.type === 'radio' && !one.checked;
    return [...document.querySelectorAll('button, select, input, a[href], summary, [tabindex="0"]')].filter((one) => one.tabIndex >= 0 && one.checkVisibility() && !one.disabled && !roving(one)
      && !(one.closest('details:not([open])') && one !== one.closest('details:not([open])').querySelector('summary'))).map((one, i) => { one.dataset.reach = i; return `${one.tagName} ${one.id} ${(one.getAttribute('aria-label') || one.textContent).slice(0, 50)}`; });
  });
  assert.ok(wanted.length > 5, where);
  const reached = new Set(), unseen = [];
  for (let i = 0; i < wanted.length + 5; i += 1) {
    await page.keyboard.press('Tab');
    const at = await page.evaluate(() => {
      const on = document.activeElement, style = getComputedStyle(on);
      return { reach: on.dataset.reach, shown: on === document.body || (style.outlineStyle !== 'none' && parseFloat(style.outlineWidth) > 0) || style.boxShadow !== 'none' };
    });
    if (at.reach !== undefined) reached.add(Number(at.reach));
    if (!at.shown) unseen.push(wanted[at.reach]);
  }
  assert.deepEqual(wanted.filter((name, i) => !reached.has(i)), [], `${where}: not reached by Tab`);
  assert.deepEqual(unseen, [], `${where}: focus is not seen`);
}

// What a time is held against: how long a processor takes depends on it and on what else runs on it. A third of a second on an idle
// one of 2024.
export const sortTwoMillion = () => {
  let state = 1;
  Float64Array.from({ length: 2e6 }, () => (state = (state * 48271) % 2147483647)).sort();
};
