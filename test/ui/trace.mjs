// Traces: played hop by hop, in groups or by time, searched, with all that is chosen in the address; and pages that stay open do not grow.

import assert from 'node:assert/strict';
import { api, axe, context, end, fixture, go, hash, hurry, logIn, page, playFast, step, text, until } from './browser.mjs';

const DEPLOYMENTS = '/apis/apps/v1/namespaces/default/deployments';
const TRACE = '/apis/trace.proa.dev/v1/namespaces/default/wiretraces/deployments.apps:';
// Simulated nodes do nothing at hop 11; node.mjs plays a trace of a real one.
const read = (path) => page.evaluate(async (p) => (await import('/dashboard/api.js')).getJSON(p), path);
const params = async () => new URLSearchParams((await hash()).split('?')[1]);

// Each signal remembers how many listeners it has, and each page the most that one of its signals has had.
await context.addInitScript(() => {
  window.mostListeners = 0;
  const { addEventListener: add, removeEventListener: remove } = AbortSignal.prototype;
  const listeners = new WeakMap();
  AbortSignal.prototype.addEventListener = function (type, f, ...rest) {
    if (!listeners.has(this)) listeners.set(this, new Set());
    listeners.get(this).add(f);
    window.mostListeners = Math.max(window.mostListeners, listeners.get(this).size);
    return add.call(this, type, f, ...rest);
  };
  AbortSignal.prototype.removeEventListener = function (type, f, ...rest) { listeners.get(this)?.delete(f); return remove.call(this, type, f, ...rest); };
});

await hurry(context);
await step('log in', logIn);

await step('a real trace is played through the hops of its writes, and the sum is the time that it took', async () => {
  await api('POST', DEPLOYMENTS, { apiVersion: 'apps/v1', kind: 'Deployment', metadata: { name: 'played' }, spec: { replicas: 2, selector: { matchLabels: { app: 'played' } },
    template: { metadata: { labels: { app: 'played' } }, spec: { containers: [{ name: 'c', image: 'nginx' }] } } } });
  const trace = await until('the trace is Ready', async () => { const t = await read(TRACE + 'played').catch(() => null); return t?.state === 'Ready' && t; });
  assert.ok(trace.spans.some((s) => s.wire), 'the trace has the bodies of the first write');
  await go('#/learn?of=default/deployments.apps:played');
  await page.getByRole('button', { name: 'Play' }).and(page.locator(':enabled')).waitFor();
  const lit = await playFast();
  for (const n of [2, 3, 4, 5, 6, 7, 8, 9, 10]) assert.ok(lit.includes(n), `hop ${n} was not played, only ${lit}`);
  const took = await page.evaluate(async (ns) => (await import('/dashboard/dom.js')).nanos(ns), trace.took);
  assert.equal(await page.locator('.play-clock').textContent(), took + ' in all');
  const sum = await page.evaluate(async (t) => (await import('/dashboard/learn.js')).stepsOf(t).reduce((a, s) => a + s.took, 0), trace);
  assert.equal(sum, trace.took);
});

await step('the bytes of a write are at the hops where they matter, and where there are none the page says so', async () => {
  for (const n of [1, 5, 7]) {
    const card = page.locator('#hop-card-' + n);
    await card.locator('summary').filter({ hasText: 'create deployments.apps played' }).first().waitFor();
    assert.ok((await card.locator('.wire').first().textContent()).includes('"played"'), `hop ${n} has the object`);
  }
  assert.ok(!(await page.locator('#hop-card-5 .wire').first().textContent()).includes('"uid"'), 'hop 5 has what was sent');
  assert.ok((await page.locator('#hop-card-7 .wire').first().textContent()).includes('"uid"'), 'hop 7 has what was stored');
  const bindings = page.locator('#hop-card-10');
  await bindings.locator('summary').filter({ hasText: 'pods/binding' }).first().click();
  await bindings.getByText('The caller is in the server’s process: no bytes were sent.').first().waitFor(); // the scheduler
  assert.ok((await bindings.locator('.wire').first().textContent()).includes('"Binding"'), 'hop 10 has the object that the scheduler handed over');
  await axe('How it works, with a trace');
  await page.route(/\/wiretraces\/deployments/, async (r) => {
    const read = await (await r.fetch()).json();
    await r.fulfill({ json: { ...read, spans: read.spans.map((s) => (s.name.endsWith('/binding') ? { ...s, wire: undefined } : s)) } });
  });
  await go('#/overview');
  await page.getByRole('heading', { name: 'Overview' }).waitFor();
  await go('#/learn?of=default/deployments.apps:played');
  await bindings.getByText('There are no bytes of the bindings. The server keeps those of Secrets, Leases and Events never').waitFor();
  await page.unrouteAll({ behavior: 'wait' }); // the page may be asking just now
});

// show shows a trace that the test has made.
let shown = null;
await page.route(/\/(wire)?traces\/deployments/, (r) => (shown ? r.fulfill({ body: JSON.stringify(shown), contentType: 'application/json' }) : r.continue()));
const show = async (trace, query = '') => {
  shown = trace;
  await go('#/overview');
  await page.getByRole('heading', { name: 'Overview' }).waitFor();
  await go('#/object/apps/deployments/default/played?tab=trace' + query);
  await page.locator('.trace-row').first().waitFor();
};
const rows = () => page.locator('.trace-row').evaluateAll((list) => list.map((r) => r.querySelector('.span-name').textContent));
const fixed = JSON.parse(fixture('trace.json'));

await step('spans are in the order of hops, or by time', async () => {
  await show(fixed);
  const groups = () => page.locator('.trace-group .span-name').allTextContents();
  assert.deepEqual(await groups(), ['2–7 API server', '8 watch', '9 control', '10 schedule', '11 node', '12 network']);
  const byHop = await rows();
  assert.ok(byHop.indexOf('pull nginx:1.29') > byHop.indexOf('hidden (no access)'), 'all of hop 9 is before hop 11');
  await page.getByRole('button', { name: 'By time' }).click();
  assert.equal((await params()).get('order'), 'time');
  assert.deepEqual(await groups(), []);
  const byTime = await rows();
  assert.ok(byTime.indexOf('pull nginx:1.29') < byTime.indexOf('hidden (no access)'));
  await page.reload();
  await page.locator('.trace-row').first().waitFor();
  assert.deepEqual(await rows(), byTime);
  await page.getByRole('button', { name: 'By hop' }).click();
  assert.equal((await params()).get('order'), null);
});

await step('what is expanded is in the address', async () => {
  await show(fixed);
  const collapsed = await rows();
  await page.keyboard.press('o');
  const one = await rows();
  assert.ok(one.length > collapsed.length && one.includes('mutate') && !one.includes('ServiceAccount'), one.join());
  await page.keyboard.press('o');
  assert.ok((await rows()).includes('ServiceAccount'));
  await page.keyboard.press('p');
  assert.deepEqual(await rows(), one);
  await page.keyboard.press('[');
  await page.locator('.trace-row').filter({ hasText: 'PATCH deployments/web' }).locator('.twist').click();
  const opened = await rows();
  assert.ok(opened.includes('mutate') && !opened.includes('filter'), opened.join());
  await page.reload();
  await page.locator('.trace-row').first().waitFor();
  assert.deepEqual(await rows(), opened);
});

await step('find spans in a trace', async () => {
  await show(fixed);
  await page.keyboard.press('Control+b');
  await page.keyboard.type('webhook');
  await text('1 of');
  await page.keyboard.press('Enter');
  await page.locator('.trace-row.selected.found').filter({ hasText: 'webhook inject.example.dev' }).waitFor();
  assert.equal((await params()).get('find'), 'webhook');
  await page.getByRole('searchbox', { name: /^Find/ }).fill('pull nginx');
  await text('2 of');
  await page.keyboard.press('Enter');
  const first = (await params()).get('sel');
  await page.keyboard.press('Enter');
  assert.notEqual((await params()).get('sel'), first);
  await page.keyboard.press('Enter');
  assert.equal((await params()).get('sel'), first);
  await axe('a trace with a search');
  await page.reload();
  await page.locator('.trace-row.found').first().waitFor();
  await page.getByRole('searchbox', { name: /^Find/ }).press('Escape');
  await page.keyboard.press('Shift+ArrowUp');
  assert.ok((await params()).get('t'), 'Shift with the arrows zooms');
});

await step('the first answer to a client, and labels of milestones that are close together', async () => {
  const at = 1951000000;
  const close = { ...fixed, milestones: [...fixed.milestones.slice(0, 4), ...['Ready', 'Programmed', 'First answer'].map((name, i) => ({ name, at: at + i * 1000 })), { name: 'Sandbox', at: at - 2000 }, { name: 'Scheduled', at: at - 3000 }],
    spans: [...fixed.spans, { id: 'answer', name: 'first answer of web-5d8c7b9f6d-x2lqp', hop: 12, hopName: 'network', start: '2026-11-17T18:00:02.074000000Z', took: 400000, actor: 'node-1', object: { group: 'discovery.k8s.io', resource: 'endpointslices', namespace: 'default', name: 'web-abc12' }, process: 'node-1' }] };
  await show(close);
  await page.locator('.stone-label').getByText('First answer').waitFor();
  const boxes = await page.locator('.stone-label').evaluateAll((list) => list.map((e) => { const b = e.getBoundingClientRect(); return [e.textContent, b.left, b.right, b.top, b.bottom]; }));
  assert.equal(boxes.length, close.milestones.length);
  for (const [i, a] of boxes.entries()) {
    for (const b of boxes.slice(i + 1)) assert.ok(a[2] <= b[1] + 1 || b[2] <= a[1] + 1 || a[4] <= b[3] + 1 || b[4] <= a[3] + 1, `${a} and ${b} overlap`);
  }
  await page.locator('.trace-body').evaluate((e) => { e.scrollTop = e.scrollHeight; });
  await page.locator('.trace-row.hop-12').getByText('first answer of web-5d8c7b9f6d-x2lqp').waitFor();
  await go('#/learn?of=default/deployments.apps:played');
  await page.locator('#hop-card-12').getByText('first answer of web-5d8c7b9f6d-x2lqp').waitFor();
  await page.locator('#hop-card-12').getByText('the first time that a Pod answers a client').waitFor();
});

await step('a hop in the address is shown, also on a page that is open', async () => {
  await go('#/learn?of=default/deployments.apps:played&hop=4');
  await page.locator('.station.now').getByText('mutate').waitFor();
  await go('#/learn?of=default/deployments.apps:played&hop=11');
  await page.locator('.station.now').getByText('node').waitFor();
});

await step('the chosen span is shown anew when it has ended', async () => {
  await show(fixed, '&sel=pl1');
  const detail = page.getByRole('complementary', { name: 'The chosen span' });
  await detail.getByText('so far').waitFor();
  shown = { ...fixed, spans: fixed.spans.map((s) => (s.id === 'pl1' ? { ...s, open: false, took: 2500000000 } : s)) };
  await detail.getByText('2.50 s', { exact: true }).waitFor();
  assert.equal(await detail.getByText('so far').count(), 0);
});

await step('a page that stays open registers no more listeners', async () => {
  await show(fixed);
  await page.keyboard.press('[');
  for (let i = 0; i < 40; i++) await page.keyboard.press('f');
  for (const name of ['Summary', 'Trace', 'Summary', 'Trace', 'Summary', 'Trace', 'Summary', 'Trace']) await page.getByRole('tab', { name }).click();
  for (let i = 0; i < 3; i++) await page.waitForResponse(/\/traces\/deployments/); // the trace is read again
  const most = await page.evaluate(() => window.mostListeners);
  assert.ok(most > 0 && most < 10, `a signal has had ${most} listeners`);
});

await end();
