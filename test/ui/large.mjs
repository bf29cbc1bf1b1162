// Ten thousand Pods. What a frame costs is counted in elements, rows and layouts, and measured in processor time of the page's thread: a
// busy machine makes neither larger.

import assert from 'node:assert/strict';
import { context, end, go, hash, logIn, page, step } from './browser.mjs';

const PODS = 10000;
const ROW = 36; // pixels
const LONG = 0.05; // seconds: what browsers call a long task
const nameOf = (i) => 'pod-' + String(i).padStart(5, '0');
const columnDefinitions = ['Name', 'Ready', 'Status', 'Restarts', 'Age'].map((name) => ({ name, type: 'string', format: '', description: '', priority: 0 }));
const rowOf = (i, status = 'Running', name = nameOf(i)) => ({ cells: [name, '1/1', status, 0, '6y'], object: { kind: 'PartialObjectMetadata', apiVersion: 'meta.k8s.io/v1',
  metadata: { name, namespace: 'default', uid: String(i), creationTimestamp: '2020-01-01T00:00:00Z', labels: { app: 'a' + i % 100 } } } });
const eventOf = (type, row) => JSON.stringify({ type, object: { kind: 'Table', apiVersion: 'meta.k8s.io/v1', columnDefinitions, rows: [row] } }) + '\n';

// Watches of Pods that are open, and the number of Pods that are listed.
const watches = new Set();
let listed = PODS;
await page.routeWebSocket(/\/pods\?(?!fieldSelector).*watch/, (ws) => {
  ws.send(JSON.stringify({ code: 200 }));
  watches.add(ws);
  ws.onClose(() => watches.delete(ws));
});
await page.route(/\/api\/v1\/pods\?limit/, (r) => {
  const from = Number(new URL(r.request().url()).searchParams.get('continue') || 0);
  r.fulfill({ contentType: 'application/json', body: JSON.stringify({ kind: 'Table', apiVersion: 'meta.k8s.io/v1', metadata: { resourceVersion: '1', continue: from + 500 < listed ? String(from + 500) : '' },
    columnDefinitions, rows: Array.from({ length: Math.min(500, listed - from) }, (_, i) => rowOf(from + i)) }) });
});
const send = (...events) => { for (const e of events) for (const ws of watches) ws.send(Buffer.from(e)); };

const cdp = await context.newCDPSession(page);
await cdp.send('Performance.enable', { timeDomain: 'threadTicks' });
const metrics = async () => Object.fromEntries((await cdp.send('Performance.getMetrics')).metrics.map((m) => [m.name, m.value]));
// costOf returns the processor time in seconds that scripts, styles and layout take, and the number of layouts, of what the page does.
async function costOf(f) {
  const before = await metrics();
  await f();
  await frames(2);
  const after = await metrics();
  const grown = (name) => after[name] - before[name];
  return { time: grown('ScriptDuration') + grown('RecalcStyleDuration') + grown('LayoutDuration'), layouts: after.LayoutCount - before.LayoutCount };
}
const frames = (n) => page.evaluate(async (k) => { for (let i = 0; i < k; i++) await new Promise(requestAnimationFrame); }, n);
const count = () => page.locator('.head [role=status]').textContent();
const counted = (text) => page.waitForFunction((t) => document.querySelector('.head [role=status]')?.textContent === t, text);
const elements = () => page.evaluate(() => document.querySelectorAll('#main *').length);
const rowsInDocument = () => page.locator('.grid-block .grid-row').count();

// watchRows counts from now on which rows are written, and how often the number above the list is.
const watchRows = () => page.evaluate(() => {
  window.seen?.stop();
  const seen = window.seen = { rows: new Set(), heads: 0, frames: 0 };
  const rows = new MutationObserver((list) => {
    for (const m of list) {
      for (const el of m.type === 'childList' && m.target.matches('.grid-block') ? m.addedNodes : [m.target]) {
        const row = (el.nodeType === Node.TEXT_NODE ? el.parentElement : el)?.closest('.grid-row');
        if (row) seen.rows.add(row);
      }
    }
  });
  rows.observe(document.querySelector('.grid-block'), { childList: true, subtree: true, characterData: true, attributes: true, attributeFilter: ['class', 'href', 'title'] });
  const head = new MutationObserver(() => { seen.heads++; });
  head.observe(document.querySelector('.head [role=status]'), { childList: true, subtree: true, characterData: true });
  const tick = () => { seen.frames++; seen.frame = requestAnimationFrame(tick); };
  tick();
  seen.stop = () => { rows.disconnect(); head.disconnect(); cancelAnimationFrame(seen.frame); };
});
const seen = () => page.evaluate(() => ({ rows: window.seen.rows.size, heads: window.seen.heads, frames: window.seen.frames }));

await step('log in', logIn);

let few = 0;
await step('the document is as large with ten thousand rows as with a hundred', async () => {
  listed = 100;
  await go('#/kind/core/pods?ns=');
  await counted('100');
  few = await elements();
  listed = PODS;
  await go('#/overview');
  await page.getByRole('heading', { name: 'Overview' }).waitFor();
  await go('#/kind/core/pods');
  await counted(String(PODS));
  assert.ok(await elements() <= few, `${await elements()} elements, and ${few} with 100 rows`);
  const inSight = await page.evaluate((row) => Math.ceil(document.querySelector('.grid-scroll').clientHeight / row), ROW);
  assert.ok(await rowsInDocument() <= inSight + 16, `${await rowsInDocument()} rows in the document, ${inSight} in sight`);
  assert.equal(await page.getByRole('grid').getAttribute('aria-rowcount'), String(PODS + 1));
});

await step('scrolling by a row writes one row', async () => {
  await page.evaluate(() => { document.querySelector('.grid-scroll').scrollTop = 5000 * 36; });
  await frames(3);
  await watchRows();
  const steps = 20;
  const cost = await costOf(async () => {
    for (let i = 1; i <= steps; i++) {
      await page.evaluate((top) => { document.querySelector('.grid-scroll').scrollTop = top; }, (5000 + i) * ROW);
      await frames(1);
    }
  });
  const { rows } = await seen();
  assert.ok(rows <= steps + 2, `${rows} rows written in ${steps} steps`);
  assert.ok(cost.layouts <= 4 * steps, `${cost.layouts} layouts`);
  console.log(`a step: ${(cost.time / steps * 1000).toFixed(1)} ms of processor time, ${(cost.layouts / steps).toFixed(1)} layouts`);
});

await step('jumping anywhere is no long task', async () => {
  let worst = 0;
  for (let i = 0; i < 30; i++) {
    const cost = await costOf(() => page.evaluate((top) => { document.querySelector('.grid-scroll').scrollTop = top; }, (i * 7919) % PODS * ROW));
    worst = Math.max(worst, cost.time);
  }
  console.log(`the longest of 30 jumps: ${(worst * 1000).toFixed(1)} ms of processor time, with its frames`);
  assert.ok(worst < LONG, `${worst} s`);
  await page.getByRole('grid').focus();
  await page.keyboard.press('End');
  await page.getByRole('row').filter({ hasText: nameOf(PODS - 1) }).waitFor();
  await page.keyboard.press('Home');
  await page.getByRole('row').filter({ hasText: nameOf(0) }).waitFor();
});

await step('a thousand changes out of sight write no row, and the head once a frame', async () => {
  await frames(3);
  await watchRows();
  const cost = await costOf(async () => {
    for (let i = 0; i < 1000; i++) send(eventOf('MODIFIED', rowOf(2000 + i, 'Failed')));
    send(eventOf('ADDED', rowOf(PODS, 'Running', 'zz-last')));
    await counted(String(PODS + 1));
  });
  const now = await seen();
  assert.equal(now.rows, 0, 'rows were written');
  assert.ok(now.heads <= now.frames + 1, `the head was written ${now.heads} times in ${now.frames} frames`);
  console.log(`a change: ${(cost.time / 1001 * 1000).toFixed(2)} ms of processor time; ${now.frames} frames`);
  assert.ok(cost.time / now.frames < LONG, `${cost.time} s in ${now.frames} frames`);
});

await step('a change in sight writes its row', async () => {
  await frames(2);
  await watchRows();
  send(eventOf('MODIFIED', rowOf(3, 'CrashLoopBackOff')));
  await page.getByRole('row').filter({ hasText: nameOf(3) }).getByText('CrashLoopBackOff').waitFor();
  assert.equal((await seen()).rows, 1);
  await watchRows();
  send(eventOf('ADDED', rowOf(1, 'Running', 'aa-first'))); // the others move down, and are not written
  await page.getByRole('row').filter({ hasText: 'aa-first' }).waitFor();
  assert.ok((await seen()).rows <= 2, `${(await seen()).rows} rows were written`);
  send(eventOf('DELETED', rowOf(1, 'Running', 'aa-first')));
  await counted(String(PODS + 1));
});

await step('each letter of a search is no long task', async () => {
  await page.getByRole('searchbox').focus();
  let worst = 0;
  for (const letter of 'pod-0424') {
    const cost = await costOf(() => page.keyboard.press(letter));
    worst = Math.max(worst, cost.time);
  }
  await counted(`10 of ${PODS + 1}`);
  console.log(`the longest of eight letters: ${(worst * 1000).toFixed(1)} ms of processor time, with its frames`);
  assert.ok(worst < LONG, `${worst} s`);
  assert.ok((await hash()).includes('q=pod-0424'), 'the search is in the address');
  send(eventOf('MODIFIED', rowOf(4245, 'Failed')), eventOf('DELETED', rowOf(4246)));
  await counted(`9 of ${PODS}`);
  await page.getByRole('row').filter({ hasText: nameOf(4245) }).getByText('Failed').waitFor();
  await page.getByRole('searchbox').fill('failed');
  await counted(`1001 of ${PODS}`);
  await page.getByRole('searchbox').fill('');
  await counted(String(PODS));
});

await step('sorting ten thousand rows', async () => {
  const cost = await costOf(async () => {
    await page.getByRole('button', { name: 'Status' }).click();
    await page.locator('.grid-block .grid-row').first().getByText('CrashLoopBackOff').waitFor();
  });
  console.log(`sorting: ${(cost.time * 1000).toFixed(1)} ms of processor time`);
});

await step('the overview counts what has changed, and nothing else', async () => {
  await go('#/overview');
  await page.locator('.tile').filter({ hasText: 'Pods' }).getByText(String(PODS), { exact: true }).waitFor();
  const cost = await costOf(async () => {
    for (let i = 0; i < 500; i++) send(eventOf('MODIFIED', rowOf(6000 + i, 'Pending')));
    await page.locator('.tile').filter({ hasText: 'Pods' }).getByText('500 on the way').waitFor();
  });
  console.log(`500 changes on the overview: ${(cost.time * 1000).toFixed(1)} ms of processor time`);
  assert.ok(await elements() < 500);
});

await end();
