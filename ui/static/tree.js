// The relatives of an object: who owns it, and what it owns, each with its health. The worst state of what is below shows above.

import { h, fill, badge, empty, icon } from './dom.js';
import { getJSON, kinds, kindOf, listPath, objectPath } from './api.js';
import { healthOf, worst, stateName } from './health.js';
import { objectLink } from './app.js';

const MAX = 1000; // objects of one kind that are looked at
const MAX_CUSTOM = 30; // custom kinds that are looked at
const PAUSE = 60000; // milliseconds after which a kind without children of an object is asked for again
const DEPTH = 6;
const candidates = ['replicasets.apps', 'pods', 'jobs.batch', 'deployments.apps', 'statefulsets.apps', 'daemonsets.apps', 'services', 'endpointslices.discovery.k8s.io', 'persistentvolumeclaims',
  'controllerrevisions.apps', 'configmaps', 'ingresses.networking.k8s.io', 'horizontalpodautoscalers.autoscaling'];
// Most owners own one kind; asking for the others would be a waste.
const owned = {
  Deployment: ['replicasets.apps'], ReplicaSet: ['pods'], StatefulSet: ['pods', 'controllerrevisions.apps'], DaemonSet: ['pods', 'controllerrevisions.apps'], Job: ['pods'], CronJob: ['jobs.batch'],
  ReplicationController: ['pods'], Node: ['leases.coordination.k8s.io', 'csinodes.storage.k8s.io'], Pod: ['persistentvolumeclaims', 'resourceclaims.resource.k8s.io'], Service: ['endpointslices.discovery.k8s.io'],
};

const idOf = (k) => k.resource + (k.group ? '.' + k.group : '');
const isCustom = (k) => k.group.includes('.') && !k.group.endsWith('.k8s.io') && k.group !== 'trace.proa.dev';

// selectorOf returns the label selector that the children of an object match, as the API takes it; empty if it has none.
export function selectorOf(o) {
  if (o.kind === 'Service') return 'kubernetes.io/service-name=' + o.metadata.name;
  const s = o.spec?.selector;
  if (!Object.hasOwn(owned, o.kind) || !s) return '';
  const equal = (labels) => Object.entries(labels || {}).map(([k, v]) => `${k}=${v}`);
  if (o.kind === 'ReplicationController') return equal(s).join(',');
  const one = { In: (e) => `${e.key} in (${e.values.join(',')})`, NotIn: (e) => `${e.key} notin (${e.values.join(',')})`, Exists: (e) => e.key, DoesNotExist: (e) => '!' + e.key };
  return [...equal(s.matchLabels), ...(s.matchExpressions || []).map((e) => one[e.operator]?.(e)).filter(Boolean)].join(',');
}

export function show(box, ctx) {
  const cache = new Map();
  const notes = new Set();
  const refused = new Set();
  const childless = new Map(); // when a kind was found to have no children of an object
  const list = (k, ns, selector) => {
    const path = `${listPath(k, ns)}?limit=${MAX}` + (selector ? '&labelSelector=' + encodeURIComponent(selector) : '');
    if (!cache.has(path)) {
      cache.set(path, getJSON(path, { signal: ctx.signal }).then((doc) => {
        if (doc.metadata?.continue) notes.add(`Only the first ${MAX} ${k.resource} were looked at.`);
        return (doc.items || []).map((o) => ({ ...o, kind: o.kind || k.kind, resource: k }));
      }).catch((e) => {
        if (e.code === 403) refused.add(`You may not list ${k.resource}.`);
        return [];
      }));
    }
    return cache.get(path);
  };

  // kindsBelow returns the kinds among which the children of an object are looked for: those that its kind has, and those that anybody may have
  // given to it.
  const kindsBelow = (o, depth, all) => {
    const usual = Object.hasOwn(owned, o.kind) ? owned[o.kind] : candidates;
    const custom = depth === 0 || !Object.hasOwn(owned, o.kind) ? all.filter((k) => isCustom(k) && k.verbs.includes('list') && (k.namespaced || !o.metadata.namespace)) : [];
    if (custom.length > MAX_CUSTOM) notes.add(`Only ${MAX_CUSTOM} of ${custom.length} custom kinds were looked at.`);
    return [...usual.map((id) => all.find((k) => idOf(k) === id)).filter(Boolean).map((k) => [k, Object.hasOwn(owned, o.kind)]), ...custom.slice(0, MAX_CUSTOM).map((k) => [k, false])];
  };

  // children returns what an object owns. Inherited is the selector of the owner above, which what is below matches too: so one list of Pods
  // is enough for all ReplicaSets of a Deployment.
  const children = async (o, depth, all, inherited) => {
    if (depth >= DEPTH) return [];
    const selector = inherited || selectorOf(o);
    const found = [];
    for (const [k, isUsual] of kindsBelow(o, depth, all)) {
      const key = o.metadata.uid + ' ' + idOf(k);
      if (!isUsual && Date.now() - (childless.get(key) || -PAUSE) < PAUSE) continue;
      const own = (await list(k, o.metadata.namespace, isUsual ? selector : '')).filter((c) => (c.metadata.ownerReferences || []).some((r) => r.uid === o.metadata.uid));
      if (own.length) childless.delete(key);
      else childless.set(key, Date.now());
      found.push(...own);
    }
    const nodes = [];
    for (const c of found.slice(0, 200)) nodes.push(await node(c, c.resource, depth + 1, all, o.kind === 'Deployment' && c.kind === 'ReplicaSet' ? selector : ''));
    if (found.length > 200) notes.add(`${found.length - 200} of ${found.length} are not shown.`);
    return nodes;
  };

  const node = async (o, k, depth, all, inherited = '') => {
    const below = depth > 4 ? [] : await children(o, depth, all, inherited);
    const own = healthOf(o);
    const retired = o.kind === 'ReplicaSet' && (o.spec?.replicas ?? 1) === 0;
    return { o, k, own, below, state: retired ? 'idle' : worst([own.state, ...below.map((b) => b.state)]) };
  };

  const li = (n, me) => h('li', { role: 'treeitem', 'aria-expanded': n.below.length ? 'true' : null, 'aria-selected': String(Boolean(me)) },
    h('div', { class: ['tree-node', me && 'me'] },
      h('span', { class: 'muted tree-kind' }, n.o.kind), h('a', { href: objectLink(n.k, n.o.metadata.namespace, n.o.metadata.name, { tab: 'tree' }) }, n.o.metadata.name),
      badge(n.own.state, n.own.text), n.state !== n.own.state && n.own.state !== 'idle' && h('span', { class: ['muted', 'is-' + n.state] }, icon(n.state), ' below: ' + stateName(n.state).toLowerCase())),
    n.below.length > 0 && h('ul', { role: 'group' }, n.below.map((b) => li(b))));

  let busy = false;
  let again = false;
  const draw = async () => {
    if (busy) { again = true; return; }
    busy = true;
    cache.clear();
    notes.clear();
    try {
      const all = await kinds();
      const me = await node(ctx.object, ctx.kind, 0, all);
      // The owners above, up to the first that has none.
      let top = me;
      const wrap = (owner, inner) => ({ ...owner, below: [inner] });
      let o = ctx.object;
      for (let i = 0; i < DEPTH; i++) {
        const ref = (o.metadata.ownerReferences || []).find((r) => r.controller) || o.metadata.ownerReferences?.[0];
        if (!ref) break;
        const k = await kindOf(ref.apiVersion, ref.kind);
        if (!k) break;
        try {
          const owner = await getJSON(objectPath(k, k.namespaced ? ctx.ns : '', ref.name), { signal: ctx.signal });
          if (owner.metadata.uid !== ref.uid) { notes.add(`The owner ${ref.kind} ${ref.name} is gone; there is a new one of that name.`); break; }
          const own = healthOf(owner);
          top = wrap({ o: owner, k, own, state: worst([own.state, top.state]) }, top);
          o = owner;
        } catch (e) {
          notes.add(`The owner ${ref.kind} ${ref.name} cannot be seen: ${e.message}`);
          break;
        }
      }
      const render = (n) => (n === me ? li(n, true) : h('li', { role: 'treeitem', 'aria-expanded': 'true', 'aria-selected': 'false' },
        h('div', { class: 'tree-node' }, h('span', { class: 'muted tree-kind' }, n.o.kind), h('a', { href: objectLink(n.k, n.o.metadata.namespace, n.o.metadata.name, { tab: 'tree' }) }, n.o.metadata.name), badge(n.own.state, n.own.text)),
        h('ul', { role: 'group' }, n.below.map(render))));
      fill(box, h('div', { class: 'panel' }, h('ul', { class: 'tree', role: 'tree', 'aria-label': 'Owners and what is owned' }, render(top))),
        [...notes, ...refused].map((n) => h('p', { class: 'hint' }, n)), !me.below.length && top === me && h('p', { class: 'hint' }, 'Nothing owns this object, and it owns nothing that was looked for.'));
    } catch (e) {
      if (!ctx.signal.aborted) fill(box, empty('The tree could not be read.', e.message));
    } finally {
      busy = false;
      if (again && !ctx.signal.aborted) { again = false; setTimeout(draw, 1000); }
    }
  };
  draw();
  const timer = setInterval(() => { if (!document.hidden) draw(); }, 4000);
  ctx.signal.addEventListener('abort', () => clearInterval(timer));
  return { update: () => { draw(); } };
}
