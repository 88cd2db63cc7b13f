// node pictures.mjs OUT FILE.html…: pictures of reports and of every tab of a server, light, dark and on a phone, for people to look at;
// and OUT/serve.png, that of README.md and docs/serve.md.
import { mkdirSync } from 'node:fs';
import { basename, join } from 'node:path';
import { address, drawAll, launch, looks, open, serve } from './support.mjs';

const [out, ...files] = process.argv.slice(2);
mkdirSync(out, { recursive: true });
const browser = await launch(), server = await serve();

async function picture(url, name, ready) {
  for (const [look, options] of looks) {
    const shown = await open(browser, url, options);
    await ready(shown.page);
    await drawAll(shown.page);
    await shown.page.waitForTimeout(300);
    await shown.page.screenshot({ path: join(out, `${name}-${look.replace(' ', '-')}.png`), fullPage: true, scale: 'css' });
    if (shown.kept.complaints.length > 0) process.stdout.write(`${name}-${look}: ${shown.kept.complaints.join('\n')}\n`);
    await shown.close();
  }
}

for (const file of files) await picture(address(file), basename(file, '.html'), (page) => page.waitForSelector('section'));
await picture(`${server.url}/?workload=gpt3-175b&cluster=dgx-a100&gpus=64&global_batch=256&mtbf_device_hours=5e4`, 'plan', async (page) => {
  await page.waitForFunction(() => document.querySelectorAll('#answer section').length > 4 && document.getElementById('progress').className.trim() === 'progress');
});
await picture(`${server.url}/#learn`, 'learn', async (page) => {
  const lessons = page.locator('.lesson');
  await page.waitForSelector('.lesson');
  for (let i = 0; i < await lessons.count(); i += 1) {
    await lessons.nth(i).scrollIntoViewIfNeeded();
    await page.waitForFunction((at) => document.querySelectorAll('.lesson')[at].dataset.state === 'told', i);
  }
});

const shown = await open(browser, `${server.url}/?workload=gpt3-175b&cluster=dgx-a100&gpus=64&global_batch=64`);
await shown.page.waitForFunction(() => document.querySelectorAll('#answer section').length > 4 && document.getElementById('progress').className.trim() === 'progress');
await shown.page.evaluate(() => {
  for (const section of document.querySelectorAll('#answer section')) section.hidden = !['The answer', 'A step over time'].includes(section.querySelector('h2').textContent);
  [...document.querySelectorAll('#answer figure')].find((one) => one.textContent.includes('Streams of')).hidden = true;
});
await shown.page.waitForTimeout(500);
await shown.page.screenshot({ path: join(out, 'serve.png'), fullPage: true });
await browser.close();
server.stop();
