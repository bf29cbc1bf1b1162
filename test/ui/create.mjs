// Creates objects from YAML: the dry run, the difference or the error of each document at its place, and the apply.

import assert from 'node:assert/strict';
import { api, end, go, logIn, page, step } from './browser.mjs';

const area = () => page.getByRole('textbox', { name: 'YAML of one or more objects' });
const place = (n) => page.locator('#main article').nth(n - 1);
const applyButton = () => page.getByRole('button', { name: 'Apply', exact: true });
const read = (path) => page.evaluate(async (p) => { try { return await (await import('/dashboard/api.js')).getJSON(p); } catch (e) { return e.code; } }, path);
const sum = (text) => page.locator('#main p[role=status]').getByText(text, { exact: true }).waitFor();
async function check(text, says) {
  await area().fill(text);
  await page.getByRole('button', { name: /^Check/ }).click();
  await sum(says);
}
const badge = async (n, text) => { await place(n).locator('.badge').getByText(text, { exact: true }).waitFor(); };

const NAMESPACE = 'apiVersion: v1\nkind: Namespace\nmetadata:\n  name: team\n';
const config = (value, more = '') => `apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: settings\n  namespace: team\ndata:\n  colour: ${value}\n${more}`;
const deployment = (replicas) => `apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web}\nspec:\n  replicas: ${replicas}\n  selector: {matchLabels: {app: web}}\n  template:\n    metadata: {labels: {app: web}}\n    spec: {containers: [{name: c, image: nginx}]}\n`;

await step('log in', logIn);

await step('the error of each document stands at its place', async () => {
  await page.keyboard.press('g');
  await page.keyboard.press('c');
  await page.getByRole('heading', { name: 'Create' }).waitFor();
  const text = [NAMESPACE, config('blue'), deployment('many'), 'apiVersion: v1\nkind: Nothing\nmetadata: {name: x}\n', 'apiVersion: v1\nkind: Secret\n', deployment(1) + '  unknown: 1\n', 'apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: odd\n\tdata: 1\n'].join('---\n');
  await check(text, '5 of 7 cannot be applied.');
  await badge(1, 'New');
  await place(1).locator('.diff-add').getByText('name: team').first().waitFor();
  await badge(2, 'Later'); // its namespace does not exist yet
  await badge(3, 'The server would refuse it');
  await place(3).getByRole('alert').getByText('replicas').first().waitFor();
  await place(4).getByText('The server has no Nothing in v1.').waitFor();
  await place(5).getByText('The object has no name').waitFor();
  await place(6).getByRole('alert').getByText('unknown').first().waitFor();
  await badge(7, 'The server would refuse it');
  await place(7).getByText(`Line 5 of the document is line ${text.split('\n').indexOf('\tdata: 1') + 1} of the text.`).waitFor();
  assert.ok(await applyButton().isDisabled());
  assert.equal(await read('/api/v1/namespaces/team'), 404, 'a check writes nothing');
  const line = text.split('\n').indexOf('kind: Nothing');
  await place(4).getByRole('button', { name: /^lines/ }).click();
  assert.equal(await area().evaluate((a) => a.value.slice(0, a.selectionStart).split('\n').length), line, 'the place in the text');
  assert.match(await area().evaluate((a) => a.value.slice(a.selectionStart, a.selectionEnd)), /^apiVersion: v1\nkind: Nothing\nmetadata: \{name: x\}\n?$/);
});

await step('check, then apply', async () => {
  await check([NAMESPACE, config('blue'), deployment(2)].join('---\n'), 'The server would accept all 3.');
  assert.equal(await read('/apis/apps/v1/namespaces/default/deployments/web'), 404);
  await area().press('End');
  await page.keyboard.type(' ');
  assert.ok(await applyButton().isDisabled(), 'another text must be checked again');
  await check([NAMESPACE, config('blue'), deployment(2)].join('---\n'), 'The server would accept all 3.');
  await applyButton().click();
  await sum('Applied 3 of 3.');
  for (const n of [1, 2, 3]) await badge(n, 'Created');
  assert.equal((await read('/api/v1/namespaces/team/configmaps/settings')).data.colour, 'blue');
  const made = await read('/apis/apps/v1/namespaces/default/deployments/web');
  assert.ok(made.metadata.managedFields.some((m) => m.manager === 'proa-dashboard' && m.operation === 'Apply'), 'it was applied on the server');
  await place(3).getByRole('link', { name: 'Deployment web' }).click();
  await page.getByRole('heading', { name: 'web', exact: true }).waitFor();
  await go('#/create');
  assert.ok((await area().inputValue()).includes('kind: Namespace'), 'the text stays');
});

await step('what would change', async () => {
  await check([NAMESPACE, config('red'), deployment(2)].join('---\n'), 'The server would accept all 3.');
  await badge(1, 'Unchanged');
  await badge(2, 'Changes');
  await place(2).locator('.diff-del').getByText('colour: blue').waitFor();
  await place(2).locator('.diff-add').getByText('colour: red').waitFor();
  assert.equal((await read('/api/v1/namespaces/team/configmaps/settings')).data.colour, 'blue');
});

await step('fields that somebody else manages', async () => {
  const object = await read('/api/v1/namespaces/team/configmaps/settings');
  await api('PUT', '/api/v1/namespaces/team/configmaps/settings?fieldManager=other', { ...object, data: { colour: 'green' } });
  await check(config('red'), '1 of 1 cannot be applied.');
  await badge(1, 'Conflict');
  await place(1).getByRole('alert').getByText('other').first().waitFor();
  await page.getByRole('checkbox', { name: /Take over/ }).check();
  await page.getByRole('button', { name: /^Check/ }).click();
  await sum('The server would accept it.');
  await applyButton().click();
  await sum('Applied 1 of 1.');
  assert.equal((await read('/api/v1/namespaces/team/configmaps/settings')).data.colour, 'red');
  await page.getByRole('checkbox', { name: /Take over/ }).uncheck();
});

await step('somebody who may write an object and not read it', async () => {
  const path = '**/api/v1/namespaces/team/configmaps/settings';
  await page.route(path, (r) => (r.request().method() === 'GET' ? r.fulfill({ status: 403, contentType: 'application/json', body: '{"kind":"Status","code":403,"message":"no"}' }) : r.continue()));
  await check(config('pink'), 'The server would accept it.');
  await badge(1, 'Accepted');
  await applyButton().click();
  await sum('Applied 1 of 1.');
  await badge(1, 'Applied');
  await page.unroute(path);
  assert.equal((await read('/api/v1/namespaces/team/configmaps/settings')).data.colour, 'pink');
});

await step('a definition and an object of it; a generated name; JSON', async () => {
  const definition = { apiVersion: 'apiextensions.k8s.io/v1', kind: 'CustomResourceDefinition', metadata: { name: 'boats.example.com' }, spec: { group: 'example.com', scope: 'Namespaced', names: { plural: 'boats', singular: 'boat', kind: 'Boat' },
    versions: [{ name: 'v1', served: true, storage: true, schema: { openAPIV3Schema: { type: 'object', properties: { spec: { type: 'object', properties: { length: { type: 'integer' } } } } } } }] } };
  const text = [JSON.stringify(definition), 'apiVersion: example.com/v1\nkind: Boat\nmetadata: {name: proa}\nspec: {length: 12}\n', 'apiVersion: v1\nkind: ConfigMap\nmetadata: {generateName: some-}\n'].join('\n---\n');
  await check(text, 'The server would accept all 3.');
  await badge(2, 'Later');
  await applyButton().click();
  await sum('Applied 3 of 3.');
  assert.equal((await read('/apis/example.com/v1/namespaces/default/boats/proa')).spec.length, 12);
  await place(3).getByRole('link', { name: /^ConfigMap some-/ }).waitFor();
});

await step('names in the text are text', async () => {
  await check('apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: "<img src=x onerror=window.pwned=1>"\n', '1 of 1 cannot be applied.');
  await place(1).getByText('<img src=x onerror=window.pwned=1>').first().waitFor();
  assert.equal(await page.locator('#main img').count(), 0);
  assert.equal(await page.evaluate(() => window.pwned), undefined);
});

await step('a logged out page keeps nothing of the text', async () => {
  await page.getByRole('button', { name: 'Log out' }).click();
  await page.locator('#secret').waitFor();
  assert.equal(await page.evaluate(async () => { const main = document.createElement('div'); (await import('/dashboard/create.js')).show({ main, signal: new AbortController().signal, ns: '' }); return main.querySelector('textarea').value; }), '');
});

await end();
