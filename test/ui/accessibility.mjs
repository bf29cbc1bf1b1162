// Looks for serious faults of accessibility with axe: in every view, every tab and every dialog, in the light and in the dark theme.

import assert from 'node:assert/strict';
import { api, axe, base, end, fixture, go, logIn, page, step } from './browser.mjs';

const POD = '#/object/core/pods/default/lost';
const DEPLOYMENT = '#/object/apps/deployments/default/web';
const TRACE = '**/apis/trace.proa.dev/v1/namespaces/default/traces/*';
const main = () => page.locator('#main');
const inPanel = () => page.getByRole('tabpanel');

// Each view has a name, its address, and what to do until it shows all that it has.
const views = [
  ['overview', '#/overview', async () => { await main().getByText('Running', { exact: false }).first().waitFor(); await page.locator('.event').first().waitFor(); }],
  ['overview with access to little', '#/overview?ns=nowhere', () => main().getByText('no Pods').waitFor()],
  ['kind', '#/kind/core/pods', async () => { await page.getByRole('row').filter({ hasText: 'lost' }).waitFor(); await page.getByRole('grid').focus(); await page.keyboard.press('Home'); }],
  ['kind without objects', '#/kind/core/pods?q=nothing-has-this-name', () => main().getByText('Nothing matches.').waitFor()],
  ['kind in all columns, sorted', '#/kind/core/pods?wide=1&sort=-Name', () => page.getByRole('columnheader', { name: 'Nominated Node' }).waitFor()],
  ['stuck', '#/stuck', () => page.locator('article').first().waitFor()],
  ['traces', '#/traces', () => page.getByRole('link', { name: 'Play' }).first().waitFor()],
  ['learn', '#/learn', () => page.getByRole('heading', { name: /kubectl apply/ }).waitFor()],
  ['learn while a trace is played', '#/learn?of=default/deployments.apps:web&hop=7', async () => {
    await page.locator('.hop-real h3').first().waitFor();
    await page.getByRole('button', { name: 'Play', exact: true }).click();
    await page.locator('.play-clock').getByText('·').waitFor();
  }],
  ['create', '#/create', () => page.getByRole('heading', { name: 'Create' }).waitFor()],
  ['create, checked', '#/create', async () => {
    await page.getByRole('textbox', { name: 'YAML of' }).fill('apiVersion: v1\nkind: ConfigMap\nmetadata: {name: fresh}\ndata: {a: b}\n---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: bad}\ndata: {a: [1]}\n');
    await page.getByRole('button', { name: /^Check/ }).click();
    await main().getByText('1 of 2 cannot be applied.').waitFor();
  }],
  ['object: summary', DEPLOYMENT, () => inPanel().getByText('Conditions').waitFor()],
  ['object: summary of a Pod', POD, () => inPanel().getByText('Containers').waitFor()],
  ['object: why', POD + '?tab=why', () => inPanel().getByText('What to do').waitFor()],
  ['object: trace', DEPLOYMENT + '?tab=trace', async () => { await page.getByRole('tree').getByText('hidden (no access)').first().waitFor(); await page.locator('.trace-detail h3').waitFor(); }],
  ['object: tree', DEPLOYMENT + '?tab=tree', () => page.getByRole('tree').getByText('ReplicaSet').waitFor()],
  ['object: yaml', DEPLOYMENT + '?tab=yaml', () => inPanel().getByText('apiVersion: apps/v1').waitFor()],
  ['object: yaml, edited and checked', DEPLOYMENT + '?tab=yaml', () => edit((s) => s.replace(/^( *)replicas: \d+/m, '$1replicas: 5'), '.diff-add')],
  ['object: yaml, refused', DEPLOYMENT + '?tab=yaml', () => edit((s) => s.replace(/^( *)replicas: \d+/m, '$1replicas: many'), '.problem')],
  ['object: events', POD + '?tab=events', () => inPanel().getByText('FailedScheduling').first().waitFor()],
  ['object: logs', POD + '?tab=logs', () => page.getByRole('log').getByText('line').first().waitFor()],
  ['object: shell', POD + '?tab=shell', async () => {
    await page.getByRole('button', { name: 'Connect' }).click();
    await page.locator('.terminal').getByText('plain').waitFor();
  }],
  ['object that does not exist', '#/object/core/pods/default/nobody', () => main().getByText('There is no Pod nobody').waitFor()],
  ['kind that does not exist', '#/kind/core/nothings', () => main().getByText('The server has no').waitFor()],
  ['dialog: go to', '#/overview', async () => { await ready(); await page.keyboard.press('/'); await page.keyboard.type('po'); await page.getByRole('dialog').getByRole('option').first().waitFor(); }],
  ['dialog: keys', '#/overview', async () => { await ready(); await page.keyboard.press('?'); await page.getByRole('dialog').waitFor(); }],
  ['dialog: delete', POD, async () => { await inPanel().getByText('Containers').waitFor(); await page.getByRole('button', { name: 'Delete' }).click(); await page.getByRole('dialog').waitFor(); }],
];
const ready = () => page.getByRole('heading', { name: 'Overview' }).waitFor();

// edit changes the YAML and checks it.
async function edit(change, until) {
  await inPanel().getByRole('button', { name: 'Edit' }).click();
  const area = page.getByRole('textbox', { name: 'YAML of web' });
  await area.fill(change(await area.inputValue()));
  await page.getByRole('button', { name: /^Check/ }).click();
  await page.locator(until).first().waitFor();
}

await step('the page before anybody has logged in', async () => {
  await page.goto(base);
  await page.locator('#secret').waitFor();
  for (const colorScheme of ['light', 'dark']) {
    await page.emulateMedia({ colorScheme });
    await axe(`log in (${colorScheme})`);
  }
  await page.emulateMedia({ colorScheme: 'light' });
});

await step('log in, and have something to look at', async () => {
  await logIn();
  await api('POST', '/apis/apps/v1/namespaces/default/deployments', { apiVersion: 'apps/v1', kind: 'Deployment', metadata: { name: 'web', labels: { app: 'web' } },
    spec: { replicas: 2, selector: { matchLabels: { app: 'web' } }, template: { metadata: { labels: { app: 'web' } }, spec: { containers: [{ name: 'c', image: 'nginx' }] } } } });
  await api('POST', '/api/v1/namespaces/default/pods', { apiVersion: 'v1', kind: 'Pod', metadata: { name: 'lost', annotations: { note: 'one' } },
    spec: { nodeSelector: { disk: 'ssd' }, containers: [{ name: 'c', image: 'nginx' }] } });
  await page.route(TRACE, (r) => r.fulfill({ body: JSON.stringify({ ...JSON.parse(fixture('trace.json')), unseen: ['server two'] }), contentType: 'application/json' }));
  await page.routeWebSocket(/\/log\?/, (ws) => { ws.send(JSON.stringify({ code: 200 })); ws.send(Buffer.from('line one\nline two\n')); });
  await page.routeWebSocket(/\/exec\?/, (ws) => {
    const colours = [...Array(16).keys()].map((n) => `\u001b[${n < 8 ? 30 + n : 82 + n}mcolour ${n}\u001b[0m \u001b[${n < 8 ? 40 + n : 92 + n}mbehind\u001b[0m \u001b[2mdim\u001b[0m`);
    ws.send(Buffer.from(`\u0001plain \u001b[7mreverse\u001b[0m\r\n${colours.join('\r\n')}\r\n`));
  });
});

await step('every view and every tab is in the list', async () => {
  const names = await page.evaluate(async () => (await import('/dashboard/app.js')).viewNames);
  await go(POD);
  await page.getByRole('tab').first().waitFor();
  const tabs = await page.getByRole('tab').evaluateAll((all) => all.map((t) => 'object: ' + t.id.replace('tab-', '')));
  const missing = [...names.filter((n) => n !== 'object'), ...tabs].filter((n) => !views.some(([name]) => name === n));
  assert.deepEqual(missing, []);
});

const background = () => page.evaluate(() => getComputedStyle(document.body).backgroundColor);
// inTheme puts the page into a theme, as its button does; a dialog is in front of the button.
const inTheme = (theme) => page.evaluate((t) => { document.documentElement.dataset.theme = t; window.dispatchEvent(new Event('proa-theme')); }, theme);

await step('the button of the page chooses the themes that are looked at', async () => {
  const shown = [];
  for (const theme of ['light', 'dark']) { // the page begins with the theme of the system
    await page.locator('#theme').click();
    await page.getByRole('button', { name: `Theme: ${theme}.` }).waitFor();
    const colour = await background();
    await inTheme(theme);
    assert.equal(await background(), colour);
    shown.push(colour);
  }
  assert.notEqual(shown[0], shown[1]);
});

await step('no serious finding in the light and in the dark theme', async () => {
  for (const [name, hash, show] of views) {
    await inTheme('light');
    await go('#/kind/core/namespaces'); // so that each view begins anew
    await page.getByRole('heading', { name: 'Namespaces' }).waitFor();
    await go(hash);
    await show();
    await axe(`${name} (light)`);
    const light = await background();
    await inTheme('dark');
    await axe(`${name} (dark)`, ['color-contrast']); // the other rules do not depend on the theme
    assert.notEqual(await background(), light, name + ' is not dark');
    if (name.startsWith('dialog')) await page.keyboard.press('Escape');
  }
});

await end();
