// Uses the dashboard as people do, against an API server with simulated nodes.

import assert from 'node:assert/strict';
import { api, base, browser, context, end, fixture, go, hash, logIn, page, server, step, text, until } from './browser.mjs';

const deployment = (name, replicas) => ({ apiVersion: 'apps/v1', kind: 'Deployment', metadata: { name }, spec: { replicas, selector: { matchLabels: { app: name } },
  template: { metadata: { labels: { app: name } }, spec: { containers: [{ name: 'c', image: 'nginx' }] } } } });
const DEPLOYMENTS = '/apis/apps/v1/namespaces/default/deployments';

await step('a wrong code is refused', async () => {
  await page.goto(base);
  await page.fill('#secret', '00000000');
  await page.keyboard.press('Enter');
  await page.getByRole('alert').getByText('not the code').waitFor();
});

await step('log in with the code', async () => {
  await logIn();
  await page.getByText('Live', { exact: true }).waitFor();
  assert.ok(!page.url().includes(process.env.UI_CODE));
});

await step('the file that the command opens logs a browser in', async () => {
  const other = await browser.newContext();
  const p = await other.newPage();
  await p.goto('file://' + process.env.UI_LOGIN_FILE);
  await p.getByRole('heading', { name: 'Overview' }).waitFor();
  assert.ok(p.url().startsWith(base));
  await p.reload(); // the tab stays logged in
  await p.getByRole('heading', { name: 'Overview' }).waitFor();
  const another = await other.newPage(); // and hands its key to other tabs
  await another.goto(base);
  await another.getByRole('heading', { name: 'Overview' }).waitFor();
  await p.goto('file://' + process.env.UI_LOGIN_FILE);
  await other.close();
});

await step('a Deployment goes from apply to Ready before our eyes', async () => {
  await go('#/kind/apps/deployments');
  await page.getByText('There are none').waitFor();
  await api('POST', DEPLOYMENTS, deployment('web', 3));
  await page.getByRole('row').filter({ hasText: 'web' }).getByText('3/3').waitFor();
});

await step('only the keyboard: find the Deployment, open its trace, walk through the spans', async () => {
  await go('#/overview');
  await page.getByRole('heading', { name: 'Overview' }).waitFor();
  await page.keyboard.press('/');
  await page.keyboard.type('deploy');
  await page.keyboard.press('Enter');
  await page.getByRole('heading', { name: 'Deployments' }).waitFor();
  await page.getByRole('grid').getByText('web').waitFor();
  for (let i = 0; i < 20; i++) { // by Tab to the list
    await page.keyboard.press('Tab');
    if (await page.evaluate(() => document.activeElement?.getAttribute('role') === 'grid')) break;
  }
  await page.keyboard.press('Home');
  await page.keyboard.press('Enter');
  await page.getByRole('heading', { name: 'web', exact: true }).waitFor();
  for (let i = 0; i < 20; i++) {
    await page.keyboard.press('Tab');
    if (await page.evaluate(() => document.activeElement?.getAttribute('role') === 'tab')) break;
  }
  await page.keyboard.press('ArrowRight');
  await page.keyboard.press('ArrowRight');
  await page.getByRole('tree').getByText('create deployments').first().waitFor();
  await text('Ready');
  await page.keyboard.press('f');
  await page.keyboard.press('f');
  assert.ok((await hash()).includes('sel='), 'the chosen span is in the address');
  await page.keyboard.press('+');
  assert.ok((await hash()).includes('t='), 'the zoom is in the address');
  await page.keyboard.press('0');
  await page.keyboard.press('?');
  await page.getByRole('dialog').getByText('next, previous span').waitFor();
  await page.keyboard.press('Escape');
  await page.getByRole('dialog').waitFor({ state: 'detached' });
});

await step('a stuck Pod and its reason', async () => {
  await api('POST', '/api/v1/namespaces/default/pods', { apiVersion: 'v1', kind: 'Pod', metadata: { name: 'lost' }, spec: { nodeSelector: { disk: 'ssd' }, containers: [{ name: 'c', image: 'nginx' }] } });
  await go('#/stuck');
  const item = page.locator('article').filter({ hasText: 'lost' });
  await item.getByText('schedule', { exact: false }).first().waitFor();
  await item.getByRole('link').first().click();
  await page.getByRole('tab', { name: 'Why', selected: true }).waitFor();
  await page.getByText('What to do').waitFor();
});

await step('edit: dry run, difference, apply', async () => {
  await go('#/object/apps/deployments/default/web?tab=yaml');
  await page.getByRole('tabpanel').getByRole('button', { name: 'Edit' }).click();
  const area = page.getByRole('textbox', { name: 'YAML of web' });
  const before = await area.inputValue();
  await area.fill(before.replace('replicas: 3', 'replicas: three'));
  await page.getByRole('button', { name: /^Check/ }).click();
  await page.getByText('The server would refuse it').waitFor();
  await area.fill(before.replace('replicas: 3', 'replicas: 4'));
  await page.getByRole('button', { name: /^Check/ }).click();
  await page.locator('.diff-add').getByText('replicas: 4').waitFor();
  const still = await api('PUT', DEPLOYMENTS + '/web?dryRun=All', { ...deployment('web', 3) });
  assert.equal(still.spec.replicas, 3);
  await page.getByRole('button', { name: 'Apply' }).click();
  await page.getByText('Applied as revision').waitFor();
  await page.getByText('4/4 ready').waitFor();
});

await step('values of a Secret are shown only when they are asked for', async () => {
  const value = 'tr0ub4dor-mark';
  const last = (o) => ({ ...o, metadata: { ...o.metadata, annotations: { 'kubectl.kubernetes.io/last-applied-configuration': JSON.stringify(o) + '\n', 'example.dev/last-applied': btoa(JSON.stringify(o)), 'example.dev/note': 'plain' } } });
  const login = { apiVersion: 'v1', kind: 'Secret', metadata: { name: 'login', namespace: 'default' }, stringData: { password: value } };
  const made = await api('POST', '/api/v1/namespaces/default/secrets', last(login));
  await api('POST', '/api/v1/namespaces/default/pods', { apiVersion: 'v1', kind: 'Pod', metadata: { name: 'keyed', ownerReferences: [{ apiVersion: 'v1', kind: 'Secret', name: 'login', uid: made.metadata.uid }] },
    spec: { containers: [{ name: 'c', image: 'nginx', env: [{ name: 'P', valueFrom: { secretKeyRef: { name: 'login', key: 'password' } } }] }] } });
  const isHidden = async (where) => {
    const html = await page.evaluate(() => document.documentElement.outerHTML + [...document.querySelectorAll('textarea, input')].map((e) => e.value).join());
    for (const text of [value, btoa(value), btoa(JSON.stringify(login)).slice(40, 80)]) assert.ok(!html.includes(text), `${text} is shown: ${where}`);
  };
  await go('#/kind/core/secrets?wide=1');
  await page.getByRole('grid').getByText('login').waitFor();
  await isHidden('the list');
  for (const [tab, sign] of [['summary', 'plain'], ['why', 'Secret'], ['trace', 'create secrets'], ['tree', 'keyed'], ['events', 'No Events'], ['yaml', '(hidden)']]) {
    await go('#/object/core/secrets/default/login?tab=' + tab);
    await page.locator('#tabpanel').getByText(sign).first().waitFor();
    await isHidden('the tab ' + tab);
  }
  await page.getByRole('tabpanel').getByRole('button', { name: 'Edit' }).click();
  await page.getByRole('dialog').getByText('Keep them hidden').click();
  await page.getByRole('dialog').waitFor({ state: 'detached' });
  await isHidden('Edit, and no');
  await page.getByRole('tabpanel').getByRole('button', { name: 'Edit' }).click();
  await page.getByRole('dialog').getByText('Show and edit').click();
  const area = page.getByRole('textbox', { name: 'YAML of login' });
  assert.ok((await area.inputValue()).includes(btoa(value)), 'who asks for the values gets them');
  await page.getByRole('button', { name: 'Cancel' }).click();
  await isHidden('after Edit');
  await page.getByText('Show the values').click();
  await page.locator('.code-block').getByText(btoa(value)).first().waitFor();
  await go('#/object/core/pods/default/keyed?tab=yaml');
  await page.locator('.code-block').getByText('secretKeyRef').waitFor();
  await isHidden('a Pod that uses it');
  // What is applied over it shows that a value changes, and not from which.
  await go('#/create');
  await page.getByRole('textbox', { name: 'YAML of one or more objects' }).fill('apiVersion: v1\nkind: Secret\nmetadata: {name: login}\nstringData: {other: x}\ndata: {password: eA==}\n');
  await page.getByLabel('Take over fields that others manage').check();
  await page.getByRole('button', { name: /^Check/ }).click();
  await page.locator('.diff-add').getByText('password: "(hidden) (changed)"').waitFor();
  await isHidden('Create');
});

await step('the tree of owners', async () => {
  await go('#/object/apps/deployments/default/web?tab=tree');
  await page.getByRole('tree').getByText('ReplicaSet').waitFor();
  assert.ok(await page.getByRole('treeitem').count() >= 5);
});

await step('what the cluster says is text, never markup', async () => {
  const evil = '<img src=x onerror="window.pwned=1"><b>bold</b>\u001b[31mred\u001b]0;title\u0007\u202etxt.exe';
  await api('POST', '/api/v1/namespaces/default/configmaps', { apiVersion: 'v1', kind: 'ConfigMap', metadata: { name: 'evil', annotations: { note: evil } }, data: { [`k`]: evil } });
  const cm = await api('PATCH', '/api/v1/namespaces/default/configmaps/evil', {}).catch(() => null) || await page.evaluate(async () => (await import('/dashboard/api.js')).getJSON('/api/v1/namespaces/default/configmaps/evil'));
  await api('POST', '/api/v1/namespaces/default/events', { apiVersion: 'v1', kind: 'Event', metadata: { name: 'evil.1' }, type: 'Warning', reason: '<i>Reason</i>', message: evil,
    involvedObject: { kind: 'ConfigMap', name: 'evil', namespace: 'default', uid: cm.metadata.uid, apiVersion: 'v1' }, firstTimestamp: new Date().toISOString(), lastTimestamp: new Date().toISOString() });
  const check = async () => {
    assert.equal(await page.evaluate(() => window.pwned), undefined);
    assert.equal(await page.locator('#main img, #main b, #main i').count(), 0);
    const shown = await page.textContent('#main');
    assert.ok(shown.includes('<img src=x'), 'the markup is shown as text');
    assert.ok(!/[\u001b\u0007\u202e]/.test(shown), 'no control character is in the page');
  };
  await go('#/object/core/configmaps/default/evil');
  await text('<img src=x');
  await check();
  await go('#/object/core/configmaps/default/evil?tab=yaml');
  await page.locator('.code-block').getByText('onerror').waitFor();
  assert.equal(await page.evaluate(() => window.pwned), undefined);
  await go('#/object/core/configmaps/default/evil?tab=events');
  await text('<i>Reason</i>');
  await check();
  await go('#/overview');
  await page.locator('#main').getByText('Needs attention').first().waitFor(); // the view before has the same Event
  await text('<i>Reason</i>');
  await check();
});

await step('a name in the address is text too', async () => {
  await go('#/object/core/configmaps/default/' + encodeURIComponent('<img src=x onerror=window.pwned=1>'));
  await page.getByRole('heading', { name: '<img src=x' }).waitFor();
  await go('#/kind/core/' + encodeURIComponent('<img src=x onerror=window.pwned=1>'));
  await text('The server has no');
  assert.equal(await page.evaluate(() => window.pwned), undefined);
});

await step('logs follow; colours are removed, other sequences shown, markup is text', async () => {
  let log = null;
  await page.routeWebSocket(/\/log\?/, (ws) => {
    log = ws;
    ws.send(JSON.stringify({ code: 200 }));
    ws.send(Buffer.from('first \u001b[32mgreen\u001b[0m\n<script>window.pwned=1</script>\n\u001b]0;title\u0007second\n'));
  });
  const pods = await page.evaluate(async () => (await import('/dashboard/api.js')).getJSON('/api/v1/namespaces/default/pods?labelSelector=app%3Dweb'));
  await go(`#/object/core/pods/default/${pods.items[0].metadata.name}?tab=logs`);
  await page.getByRole('log').getByText('first green').waitFor();
  const shown = await page.getByRole('log').textContent();
  const filter = page.getByRole('searchbox', { name: 'Only lines with' });
  await filter.fill('Second');
  assert.ok((await hash()).includes('lines=Second'), 'the filter is in the address');
  await page.reload();
  await page.getByRole('log').getByText('second').waitFor();
  assert.equal(await page.locator('.log-line').count(), 1);
  await filter.fill('');
  assert.ok(shown.includes('<script>window.pwned=1</script>') && shown.includes('\u241b]0;title'));
  assert.equal(await page.evaluate(() => window.pwned), undefined);
  for (const line of ['third', 'fourth']) {
    log.send(Buffer.from(line + '\n'));
    await page.getByRole('log').getByText(line, { exact: true }).waitFor();
  }
});

await step('a shell is a terminal: keys, colours, whole screens, size', async () => {
  const got = { keys: '', sizes: [] };
  let shell = null;
  await page.routeWebSocket(/\/exec\?/, (ws) => {
    shell = ws;
    ws.onMessage((m) => { if (m[0] === 4) got.sizes.push(JSON.parse(m.subarray(1))); else if (m[0] === 0) got.keys += m.subarray(1).toString(); });
  });
  const say = (s) => shell.send(Buffer.from('\u0001' + s));
  const rows = () => page.locator('.terminal-row').evaluateAll((all) => all.map((r) => r.textContent.trimEnd()));
  const sent = async (want) => { await until('as many keys as ' + want, () => got.keys.length >= want.length); assert.equal(got.keys, want); got.keys = ''; };
  await go('#/object/core/pods/default/lost?tab=shell');
  await page.getByRole('button', { name: 'Connect' }).click();
  await page.getByText('Connected', { exact: true }).waitFor();
  assert.equal(await page.evaluate(() => document.activeElement.className), 'terminal-input');
  assert.ok(got.sizes.at(-1).Width > 80 && got.sizes.at(-1).Height > 10, JSON.stringify(got.sizes));

  await page.keyboard.type('ls é');
  for (const key of ['Enter', 'Tab', 'Escape', 'Backspace', 'ArrowUp', 'Control+c', 'Control+ArrowLeft', 'Alt+b', 'PageDown', '/', '?']) await page.keyboard.press(key);
  await sent('ls é\r\t\u001b\u007f\u001b[A\u0003\u001b[1;5D\u001bb\u001b[6~/?');
  say('\u001b[?1h\u001b[6nready');
  await page.locator('.terminal').getByText('ready').waitFor();
  await page.keyboard.press('ArrowUp');
  await sent('\u001b[1;1R\u001bOA');

  const paste = (s) => page.evaluate((t) => { const data = new DataTransfer(); data.setData('text/plain', t); document.activeElement.dispatchEvent(new ClipboardEvent('paste', { clipboardData: data, bubbles: true, cancelable: true })); }, s);
  await paste('one\u001b[31m');
  await sent('one[31m');
  await paste('one\ntwo');
  await page.getByRole('dialog').getByText('Paste 2 lines?').waitFor();
  await page.keyboard.press('Escape');
  await page.getByRole('dialog').waitFor({ state: 'detached' });
  say('\u001b[?2004hbrackets');
  await page.locator('.terminal').getByText('brackets').waitFor();
  await paste('one\ntwo\u001b[201~');
  await sent('\u001b[200~one\rtwo[201~\u001b[201~');

  say('\u001b[2J\u001b[H\u001b[1;31mred\u001b[0m <i>text</i> \u001b]0;title\u0007\u001b]52;c;ZXZpbA==\u0007日本|');
  await page.locator('.terminal .t-fg-1.t-bold').getByText('red').waitFor();
  assert.equal((await rows())[0], 'red <i>text</i> 日本|');
  assert.equal(await page.locator('.terminal i').count(), 0);
  assert.ok(!(await page.title()).includes('title'));
  assert.equal(got.keys, '', 'sequences that ask are not answered');
  const wide = await page.locator('.terminal .t-wide').evaluateAll((all) => all.map((e) => e.getBoundingClientRect().width));
  const cell = await page.locator('.terminal-probe').evaluate((e) => e.getBoundingClientRect().width / 50);
  assert.ok(wide.length === 2 && wide.every((w) => Math.abs(w - 2 * cell) < 0.2), 'wide characters take two cells');

  say('\u001b[?1049h\u001b[2J\u001b[5;3Heditor\u001b[1;1H');
  await page.locator('.terminal-row').nth(4).getByText('editor').waitFor();
  assert.ok(!(await rows()).join('').includes('red'), 'an editor has the whole screen');
  say('\u001b[?1049l\r\nback');
  await page.locator('.terminal').getByText('back').waitFor();
  assert.ok((await rows())[0].startsWith('red'), 'and the shell has its own again');

  const before = got.sizes.length;
  await page.setViewportSize({ width: 1000, height: 700 });
  await page.waitForFunction(() => document.querySelector('.terminal').clientWidth < 800);
  await until('the program hears of the new size', () => got.sizes.length > before && got.sizes.at(-1).Width < got.sizes[0].Width && got.sizes.at(-1).Height < got.sizes[0].Height);
  await page.setViewportSize({ width: 1360, height: 860 });

  say('\r\nspoken line\r\n');
  await page.locator('[role=log][aria-live=polite]').getByText('spoken line').waitFor();
  await page.locator('.terminal-input').focus();
  await page.keyboard.press('Control+Shift+L');
  assert.equal(await page.evaluate(() => document.activeElement.textContent), 'Disconnect');
  assert.equal(got.keys, '');
  await page.keyboard.press('Tab');
  assert.notEqual(await page.evaluate(() => document.activeElement.className), 'terminal-input');
  shell.send(Buffer.from('\u0003{"status":"Failure","message":"command terminated with exit code 3"}'));
  await shell.close();
  await page.getByText('exit code 3', { exact: false }).first().waitFor();
  assert.ok(await page.locator('.terminal-input').isDisabled());
});

await step('a trace that is still open, with hidden spans', async () => {
  await page.route('**/apis/trace.proa.dev/v1/namespaces/default/traces/*', (r) => r.fulfill({ body: fixture('trace.json'), contentType: 'application/json' }));
  await go('#/object/apps/deployments/default/web?tab=trace');
  await page.getByRole('tree').getByText('hidden (no access)').first().waitFor();
  await text('1.94 s to Ready');
  const growing = page.locator('.open-row .bar-time').first();
  const then = await growing.textContent();
  await page.waitForFunction((t) => document.querySelector('.open-row .bar-time').textContent !== t, then);
  assert.ok(await page.locator('.critical-row').count() > 3, 'the critical path is marked');
  assert.ok(await page.locator('.stone-line').count() >= 5, 'there are milestones');
  assert.equal(await page.evaluate(() => window.pwned), undefined);
  await go('#/learn?of=default/deployments.apps:web&hop=7');
  await page.getByRole('heading', { name: 'One transaction in the store' }).waitFor();
  await page.locator('.station.now').getByText('commit').waitFor();
  await page.unroute('**/apis/trace.proa.dev/v1/namespaces/default/traces/*');
});

await step('a trace says what it could not see', async () => {
  const trace = { ...JSON.parse(fixture('trace.json')), unseen: ['server two <b>bold</b>: no answer in 2s'], hidden: 2, dropped: 7, later: 3 };
  await page.route(/\/(wire)?traces\/deployments/, (r) => r.fulfill({ body: JSON.stringify(trace), contentType: 'application/json' }));
  await go('#/overview');
  await page.getByRole('heading', { name: 'Overview' }).waitFor();
  await go('#/object/apps/deployments/default/web?tab=trace');
  const note = page.getByRole('note');
  await note.getByText('Not seen: the records of server two <b>bold</b>: no answer in 2s').waitFor();
  await note.getByText('Not complete').waitFor();
  await text('2 spans are about objects that you may not see');
  await text('The server has left 7 spans out.');
  await text('3 later records');
  await go('#/learn?of=default/deployments.apps:web');
  await page.getByRole('heading', { name: /kubectl apply/ }).waitFor();
  await note.getByText('Not seen: the records of server two').waitFor();
  await page.unroute(/\/(wire)?traces\/deployments/);
});

await step('what has failed is red: pressure, evicted Pods, silent nodes, a server that does not answer', async () => {
  const node = await api('POST', '/api/v1/nodes', { apiVersion: 'v1', kind: 'Node', metadata: { name: 'full' } });
  node.status = { conditions: [['DiskPressure', 'True', 'kubelet has disk pressure: nodefs.available was 9.1 GiB of 96.0 GiB, below its threshold 9.6 GiB (10%)'], ['Ready', 'True', 'fine']]
    .map(([type, status, message]) => ({ type, status, message, reason: 'Test', lastHeartbeatTime: new Date().toISOString(), lastTransitionTime: new Date().toISOString() })) };
  delete node.metadata.resourceVersion; // controllers write to it too
  await api('PUT', '/api/v1/nodes/full/status', node);
  const pod = await api('POST', '/api/v1/namespaces/default/pods', { apiVersion: 'v1', kind: 'Pod', metadata: { name: 'evicted' }, spec: { nodeName: 'full', containers: [{ name: 'c', image: 'nginx' }] } });
  pod.status = { phase: 'Failed', reason: 'Evicted', message: 'The node was low on resource: ephemeral-storage.',
    containerStatuses: [{ name: 'c', image: 'nginx', imageID: '', ready: false, restartCount: 0, state: { terminated: { exitCode: 0, reason: 'Completed' } } }] };
  delete pod.metadata.resourceVersion;
  await api('PUT', '/api/v1/namespaces/default/pods/evicted/status', pod);
  await go('#/overview');
  const tile = (title) => page.locator('.tile').filter({ hasText: title });
  await tile('Nodes').locator('.is-bad').getByText('1 not well').waitFor();
  await tile('Pods').locator('.is-bad').getByText(/failing/).waitFor();
  const trouble = page.getByRole('region', { name: 'Needs attention' });
  await trouble.getByRole('link').filter({ hasText: 'Node full' }).getByText('DiskPressure').waitFor();
  await trouble.getByRole('link').filter({ hasText: 'Pod evicted' }).locator('.badge.is-bad').waitFor();
  if (process.env.UI_SHOTS) await page.screenshot({ path: process.env.UI_SHOTS + '/pressure.png' });
  await go('#/kind/core/nodes');
  await page.getByRole('row').filter({ hasText: 'full' }).locator('.is-bad').getByText('Ready, DiskPressure').waitFor();
  await go('#/kind/core/pods');
  await page.getByRole('row').filter({ hasText: 'evicted' }).locator('.is-bad').first().waitFor();
  assert.ok(!(await page.getByRole('row').filter({ hasText: 'evicted' }).textContent()).includes('Completed'));
  await go('#/object/core/pods/default/evicted');
  await page.locator('.object-state .is-bad').getByText('Evicted').waitFor();
  await go('#/object/core/nodes/-/full?tab=why');
  await page.getByText('free space on the machine').waitFor();
  if (process.env.UI_SHOTS) await page.screenshot({ path: process.env.UI_SHOTS + '/why.png' });
  // A server that does not answer: what is shown is old, and says so.
  const other = await context.newPage();
  await other.goto(base);
  await other.locator('.tile').filter({ hasText: 'Nodes' }).getByText('1 not well').waitFor();
  await other.routeWebSocket(/./, (ws) => ws.close());
  for (const path of ['**/api/**', '**/apis/**']) await other.route(path, (r) => r.abort());
  await other.evaluate(() => { location.hash = '#/kind/core/nodes'; });
  await other.evaluate(() => { location.hash = '#/overview'; });
  await other.locator('.live').getByText('Connection lost').waitFor();
  await other.locator('.tiles.is-stale').waitFor();
  await other.getByText('The server does not answer.').first().waitFor();
  await other.locator('.tile').filter({ hasText: 'Nodes' }).getByText('Not known').waitFor();
  if (process.env.UI_SHOTS) await other.screenshot({ path: process.env.UI_SHOTS + '/lost.png' });
  await other.close();
  await api('DELETE', '/api/v1/nodes/full', {});
  await api('DELETE', '/api/v1/namespaces/default/pods/evicted', { gracePeriodSeconds: 0 });
});

await step('themes', async () => {
  const background = () => page.evaluate(() => getComputedStyle(document.body).backgroundColor);
  const light = await background();
  const button = page.getByRole('button', { name: /^Theme/ });
  await button.click();
  assert.equal(await background(), light);
  await button.click();
  assert.notEqual(await background(), light);
  await button.click();
  assert.equal(await background(), light);
});

await step('directly on the API server: a token, and only what its user may see', async () => {
  await api('POST', '/api/v1/namespaces/default/serviceaccounts', { apiVersion: 'v1', kind: 'ServiceAccount', metadata: { name: 'viewer' } });
  await api('POST', '/apis/rbac.authorization.k8s.io/v1/namespaces/default/rolebindings', { apiVersion: 'rbac.authorization.k8s.io/v1', kind: 'RoleBinding', metadata: { name: 'viewer' },
    roleRef: { apiGroup: 'rbac.authorization.k8s.io', kind: 'ClusterRole', name: 'view' }, subjects: [{ kind: 'ServiceAccount', name: 'viewer', namespace: 'default' }] });
  const { status: { token } } = await api('POST', '/api/v1/namespaces/default/serviceaccounts/viewer/token', { apiVersion: 'authentication.k8s.io/v1', kind: 'TokenRequest', spec: {} });
  const p = await context.newPage();
  await p.goto(server + '/dashboard/');
  await p.fill('#secret', 'wrong');
  await p.keyboard.press('Enter');
  await p.getByRole('alert').getByText('does not accept').waitFor();
  await p.fill('#secret', token);
  await p.keyboard.press('Enter');
  await p.getByRole('heading', { name: 'Overview' }).waitFor();
  await p.getByText('system:serviceaccount:default:viewer').first().waitFor();
  await p.evaluate(() => { location.hash = '#/kind/core/secrets?ns=default'; });
  await p.getByText('You may not list these objects').waitFor();
  await p.evaluate(() => { location.hash = '#/kind/apps/deployments?ns=default'; });
  await p.getByRole('row').filter({ hasText: 'web' }).getByText('4/4').waitFor();
  await p.getByText('Live', { exact: true }).waitFor();
  const kept = await p.evaluate(() => JSON.stringify([{ ...localStorage }, { ...sessionStorage }, document.cookie, location.href, history.state]));
  assert.ok(!kept.includes(token), 'the token is kept somewhere');
  await p.reload();
  await p.locator('#secret').waitFor(); // and is gone with the page
  await p.close();
});

await step('logging out ends the session', async () => {
  await page.getByRole('button', { name: 'Log out' }).click();
  await page.locator('#secret').waitFor();
});

await end();
