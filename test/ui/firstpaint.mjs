// What the page needs before it is painted: one small document, none of its modules, and no answer of the API. Modules are asked for afterwards.

import assert from 'node:assert/strict';
import { base, browser, end, logIn, page, step, until } from './browser.mjs';

const LIMIT = 12 << 10; // bytes that are sent before the first paint
const painted = (p) => p.waitForFunction(() => performance.getEntriesByName('first-contentful-paint')[0]?.startTime);
const nameOf = (url) => new URL(url).pathname.replace('/dashboard/', '') || 'index.html';

// hold stops the requests of a page that match, and returns their names and a function that lets them go on.
async function hold(p, matches) {
  const held = [];
  const waiting = [];
  await p.route((url) => matches(url), (route) => { held.push(nameOf(route.request().url())); waiting.push(route); });
  return { held, release: async () => { await p.unroute((url) => matches(url)); await p.unrouteAll(); await Promise.all(waiting.map((r) => r.continue().catch(() => {}))); } };
}

await step('the first paint needs the document and nothing else', async () => {
  const other = await browser.newContext();
  const p = await other.newPage();
  const { held, release } = await hold(p, (url) => url.pathname !== '/dashboard/');
  const cdp = await other.newCDPSession(p);
  await cdp.send('Performance.enable', { timeDomain: 'threadTicks' });
  const asked = [];
  p.on('requestfinished', (r) => asked.push(r));
  await p.goto(base, { waitUntil: 'commit' });
  await painted(p);
  const { metrics } = await cdp.send('Performance.getMetrics');
  const busy = metrics.find((m) => m.name === 'TaskDuration').value;
  console.log(`${Math.round(busy * 1000)} ms of processor time of the page's thread until the first paint`);
  assert.ok(busy < 0.1, `${busy} s`);
  assert.ok(await p.getByRole('link', { name: 'proa' }).isVisible());
  await until('the scripts are asked for', () => ['app.js', 'api.js', 'dom.js'].every((name) => held.includes(name)));
  assert.ok(!held.some((name) => name.startsWith('/api')), 'no answer of the API is waited for: ' + held);
  assert.deepEqual(asked.map((r) => nameOf(r.url())).sort(), ['index.html']);
  let bytes = 0;
  for (const r of asked) { const s = await r.sizes(); bytes += s.responseBodySize + s.responseHeadersSize; }
  console.log(`${bytes} bytes before the first paint`);
  assert.ok(bytes < LIMIT, `${bytes} bytes`);
  await release();
  await p.locator('#secret').waitFor();
  await other.close();
});

await step('a module that cannot be loaded is said on the page, and one that throws is reported as an error', async () => {
  const other = await browser.newContext();
  const p = await other.newPage();
  const errors = [];
  p.on('pageerror', (e) => errors.push(e.message));
  for (const name of ['app.js', 'dom.js']) {
    await p.route('**/' + name, (r) => r.abort());
    await p.goto(base);
    await p.locator('#main').getByText('The page could not be loaded. Load it again.').waitFor();
    await p.unrouteAll();
  }
  assert.deepEqual(errors, []);
  await p.route('**/app.js', (r) => r.fulfill({ contentType: 'text/javascript', body: "throw new Error('thrown by a module');" }));
  const reported = p.waitForEvent('pageerror');
  await p.goto(base);
  assert.equal((await reported).message, 'thrown by a module');
  assert.equal(await p.getByText('could not be loaded').count(), 0);
  await other.close();
});

await step('log in', logIn);

await step('a page that is opened again is drawn before anything is answered', async () => {
  const isData = (url) => !/^\/dashboard\/([a-z]+\.(js|css|svg))?$/.test(url.pathname);
  const { held, release } = await hold(page, isData);
  await page.reload({ waitUntil: 'commit' });
  await painted(page);
  await page.getByRole('heading', { name: 'Overview' }).waitFor();
  await page.locator('.tile').filter({ hasText: 'Deployments' }).waitFor();
  await page.getByRole('navigation').getByRole('link', { name: 'Stuck' }).waitFor();
  assert.ok(held.includes('session') && held.includes('/api/v1/pods'), 'data is asked for at once, not one after the other: ' + held);
  await release();
  await page.locator('.tile').filter({ hasText: 'Nodes' }).getByText('3 ready').waitFor();
  await page.getByText('Live', { exact: true }).waitFor();
});

await step('a key that is not good any more leads to the form', async () => {
  await page.evaluate(() => sessionStorage.setItem('proa.key', 'x'.repeat(52)));
  await page.reload();
  await page.locator('#secret').waitFor();
  assert.equal(await page.evaluate(() => sessionStorage.getItem('proa.key')), null);
});

// The time depends on the machine and what else it does, so it is printed and not compared. An empty page is measured in turn with ours.
const LOADS = Number(process.env.UI_LOADS || 2);
await step('how long it takes', async () => {
  const times = { ours: [], empty: [] };
  for (let i = 0; i < LOADS; i++) {
    for (const [name, address] of [['ours', base], ['empty', new URL('/empty', base).href]]) {
      const other = await browser.newContext(); // nothing is in its cache
      const p = await other.newPage();
      if (name === 'empty') await p.route('**/empty', (r) => r.fulfill({ contentType: 'text/html', body: '<!doctype html><title>empty</title><p>empty' }));
      await p.goto(address);
      times[name].push(await (await painted(p)).jsonValue());
      await other.close();
    }
  }
  for (const [name, list] of Object.entries(times)) {
    list.sort((a, b) => a - b);
    console.log(`first paint of ${LOADS} loads, ${name}: shortest ${Math.round(list[0])} ms, median ${Math.round(list[LOADS >> 1])} ms, longest ${Math.round(list.at(-1))} ms`);
  }
});

await end();
