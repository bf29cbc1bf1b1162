// What a user with few rights sees, what the scheduler says about nodes, and owners with their children.

import assert from 'node:assert/strict';
import { api, browser, end, fixture, go, hurry, logIn, page, server, step, text, until } from './browser.mjs';

await step('log in', logIn);

// open opens the page of the API server with the token of a new ServiceAccount that may view a namespace.
async function open(namespace) {
  const inside = `/namespaces/${namespace}`;
  await api('POST', '/api/v1/namespaces', { apiVersion: 'v1', kind: 'Namespace', metadata: { name: namespace } });
  await api('POST', `/api/v1${inside}/serviceaccounts`, { apiVersion: 'v1', kind: 'ServiceAccount', metadata: { name: 'viewer' } });
  await api('POST', `/apis/rbac.authorization.k8s.io/v1${inside}/rolebindings`, { apiVersion: 'rbac.authorization.k8s.io/v1', kind: 'RoleBinding', metadata: { name: 'viewer' },
    roleRef: { apiGroup: 'rbac.authorization.k8s.io', kind: 'ClusterRole', name: 'view' }, subjects: [{ kind: 'ServiceAccount', name: 'viewer', namespace }] });
  const { status: { token } } = await api('POST', `/api/v1${inside}/serviceaccounts/viewer/token`, { apiVersion: 'authentication.k8s.io/v1', kind: 'TokenRequest', spec: {} });
  const context = await browser.newContext({ ignoreHTTPSErrors: true, viewport: { width: 1360, height: 860 } });
  await hurry(context);
  const p = await context.newPage();
  await p.goto(`${server}/dashboard/#/overview?ns=${namespace}`);
  await p.fill('#secret', token);
  await p.keyboard.press('Enter');
  await p.getByRole('heading', { name: 'Overview' }).waitFor();
  return p;
}

await step('what a viewer may not see is not counted as stuck', async () => {
  const p = await open('small');
  await api('POST', '/apis/networking.k8s.io/v1/ingressclasses', { apiVersion: 'networking.k8s.io/v1', kind: 'IngressClass', metadata: { name: 'elsewhere' }, spec: { controller: 'example.dev/elsewhere' } });
  await api('POST', '/apis/networking.k8s.io/v1/namespaces/small/ingresses', { apiVersion: 'networking.k8s.io/v1', kind: 'Ingress', metadata: { name: 'waiting' },
    spec: { ingressClassName: 'elsewhere', defaultBackend: { service: { name: 'missing', port: { number: 80 } } } } });
  const LIST = '**/namespaces/small/explanations';
  const tile = p.locator('.tile').filter({ hasText: 'Stuck' });
  await tile.getByText('see why, but you may not see everything').waitFor();
  assert.equal(await tile.locator('.tile-big').textContent(), '1'); // the Ingress, whose class a viewer may not get
  await p.evaluate(() => { location.hash = '#/stuck?ns=small'; });
  await p.getByRole('note').getByText('Not seen: ingressclasses.networking.k8s.io elsewhere').first().waitFor();
  assert.equal(await p.locator('article').count(), 1);
  assert.equal(await p.getByRole('status').first().textContent(), '1');
  // Only what is not seen is left.
  await p.route(LIST, async (r) => {
    const list = await (await r.fetch()).json();
    await r.fulfill({ json: { ...list, items: list.items.filter((e) => e.metadata.name === 'not-seen') } });
  });
  await p.getByText('Nothing that you may see is stuck.').waitFor();
  await p.getByRole('note').getByText('Not seen: ').first().waitFor();
  assert.equal(await p.locator('article').count(), 0);
  await p.evaluate(() => { location.hash = '#/overview?ns=small'; });
  await tile.getByText('nothing is stuck, but you may not see everything').waitFor();
  assert.equal(await p.locator('.tile-big.is-bad').count(), 0);
  await p.unrouteAll({ behavior: 'wait' }); // the page may be asking just now

  await api('POST', '/api/v1/namespaces/small/pods', { apiVersion: 'v1', kind: 'Pod', metadata: { name: 'lost' }, spec: { nodeSelector: { disk: 'ssd' }, containers: [{ name: 'c', image: 'nginx' }] } });
  await p.evaluate(() => { location.hash = '#/object/core/pods/small/lost?tab=why&ns=small'; });
  await p.getByRole('row').filter({ hasText: 'hidden (no access)' }).first().waitFor();
  await p.context().close();
});

await step('what the scheduler says about nodes: plugins, scores, the chosen one, and how many are left out', async () => {
  const answer = { ...JSON.parse(fixture('explanation.json')), nodesLeftOut: 12, nodes: [
    { node: 'node-1', chosen: true, reason: '', score: 187, scores: [{ plugin: 'NodeResourcesFit', score: 87 }, { plugin: 'ImageLocality', score: 0 }, { plugin: 'PodTopologySpread', score: 100 }] },
    { node: 'node-2', reason: 'node(s) had untolerated taint', plugin: 'TaintToleration' }, { node: '', hidden: true, reason: 'too little memory', plugin: 'NodeResourcesFit' }, { node: 'node-4', reason: '' }] };
  await page.route('**/explanations/*', (r) => r.fulfill({ body: JSON.stringify(answer), contentType: 'application/json' }));
  await go('#/object/core/pods/small/lost?tab=why');
  const row = (s) => page.getByRole('row').filter({ hasText: s });
  await row('node-1').getByText('NodeResourcesFit 87, PodTopologySpread 100', { exact: true }).waitFor();
  await row('node-1').getByText('chosen').waitFor();
  await row('node-1').getByText('187', { exact: true }).waitFor();
  await row('untolerated taint').getByText('TaintToleration').waitFor();
  await row('too little memory').getByText('hidden (no access)').waitFor();
  await row('node-4').getByText('the only node that fits').waitFor();
  await text('12 more nodes are not shown.');
  await page.unroute('**/explanations/*');
});

await step('control characters are shown as symbols under the pointer too', async () => {
  await api('POST', '/api/v1/namespaces/small/events', { apiVersion: 'v1', kind: 'Event', metadata: { name: 'evil.1' }, type: 'Warning', reason: 'Evil', message: 'a message that is long enough for a hint \u001b[31m \u202etxt.exe',
    involvedObject: { kind: 'Pod', name: 'lost', namespace: 'small' }, firstTimestamp: new Date().toISOString(), lastTimestamp: new Date().toISOString() });
  await go('#/kind/core/events?ns=small');
  await page.getByRole('row').filter({ hasText: 'txt.exe' }).waitFor();
  const hints = await page.locator('[title]').evaluateAll((list) => list.map((e) => e.title));
  assert.ok(hints.some((t) => t.includes('txt.exe')));
  for (const t of hints) assert.ok(!/[\u001b\u202e]/.test(t), JSON.stringify(t));
});

await step('the tree asks with selectors, and finds custom children and those of objects without a namespace', async () => {
  const definition = (plural, kind, scope) => api('POST', '/apis/apiextensions.k8s.io/v1/customresourcedefinitions', { apiVersion: 'apiextensions.k8s.io/v1', kind: 'CustomResourceDefinition', metadata: { name: plural + '.example.dev' },
    spec: { group: 'example.dev', scope, names: { plural, kind, singular: kind.toLowerCase(), listKind: kind + 'List' }, versions: [{ name: 'v1', served: true, storage: true, schema: { openAPIV3Schema: { type: 'object', 'x-kubernetes-preserve-unknown-fields': true } } }] } });
  await definition('widgets', 'Widget', 'Namespaced');
  await definition('fleets', 'Fleet', 'Cluster');
  // make creates an object of a new definition, whose API comes after it. Until then the server does not find it.
  const make = (path, object) => {
    let refusal = null;
    const tryAgain = (e) => {
      if (e.code !== 404 && !(e.code >= 500)) throw e;
      refusal = e;
    };
    return until(() => `${path}: ${refusal?.message}`, () => api('POST', path, object).catch(tryAgain));
  };
  const owner = (o) => ({ ownerReferences: [{ apiVersion: o.apiVersion, kind: o.kind, name: o.metadata.name, uid: o.metadata.uid }] });
  const fleet = await make('/apis/example.dev/v1/fleets', { apiVersion: 'example.dev/v1', kind: 'Fleet', metadata: { name: 'north' } });
  const outer = await make('/apis/example.dev/v1/namespaces/small/widgets', { apiVersion: 'example.dev/v1', kind: 'Widget', metadata: { name: 'outer', ...owner(fleet) } });
  await make('/apis/example.dev/v1/namespaces/small/widgets', { apiVersion: 'example.dev/v1', kind: 'Widget', metadata: { name: 'inner', ...owner(outer) } });
  const web = await api('POST', '/apis/apps/v1/namespaces/small/deployments', { apiVersion: 'apps/v1', kind: 'Deployment', metadata: { name: 'web' }, spec: { replicas: 2, selector: { matchLabels: { app: 'web' }, matchExpressions: [{ key: 'tier', operator: 'In', values: ['front', 'back'] }] },
    template: { metadata: { labels: { app: 'web', tier: 'front' } }, spec: { containers: [{ name: 'c', image: 'nginx' }] } } } });
  await make('/apis/example.dev/v1/namespaces/small/widgets', { apiVersion: 'example.dev/v1', kind: 'Widget', metadata: { name: 'of-web', ...owner(web) } });
  await page.reload(); // which reads the kinds anew
  await page.getByRole('heading', { name: 'Events' }).first().waitFor();

  const asked = [];
  const note = (r) => { const u = new URL(r.url()); if (u.searchParams.get('limit') === '1000') asked.push([u.pathname.split('/').at(-1), u.searchParams.get('labelSelector')]); };
  page.on('request', note);
  await go('#/object/apps/deployments/small/web?tab=tree');
  const tree = page.getByRole('tree');
  await tree.getByRole('link', { name: 'of-web' }).waitFor();
  await page.waitForFunction(() => document.querySelectorAll('.tree [role=treeitem]').length === 5); // the Deployment, its ReplicaSet, two Pods and the Widget
  for (const what of ['replicasets', 'pods']) {
    const selectors = asked.filter(([w]) => w === what).map(([, s]) => s);
    assert.equal(selectors[0], 'app=web,tier in (front,back)', what);
    assert.ok(selectors.filter((s) => !s).length <= 1, 'the Widget may own anything: it is looked for once a minute');
  }
  page.off('request', note);

  await go('#/object/example.dev/fleets/-/north?tab=tree');
  await tree.getByRole('link', { name: 'outer' }).waitFor();
  await tree.getByRole('link', { name: 'inner' }).waitFor();
});

await end();
