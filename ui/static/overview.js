// The overview: what the cluster has, how it does and what happens, live.

import { h, fill, setText, setHint, icon, badge, age, empty } from './dom.js';
import { Live, TRACES, getJSON, splitExplanations } from './api.js';
import { FAILED, healthOf, isDown, ofPodStatus, stateName } from './health.js';
import { linkTo, objectLink } from './app.js';

const POD = { group: '', resource: 'pods' };
const DEPLOYMENT = { group: 'apps', resource: 'deployments' };

const column = (live, name) => live.columns.findIndex((c) => c.name.toLowerCase() === name);

// liveMark says whether a list is current.
export function liveMark(el, live) {
  const now = live.state + ' ' + (live.error?.message || '');
  if (el.dataset.state === now) return;
  el.dataset.state = now;
  const words = { loading: 'Loading…', live: 'Live', retrying: 'Connection lost, trying again', polling: 'Every 10 s (no right to watch)', refused: 'No access' };
  fill(el, h('span', { class: ['live-dot', 'live-' + live.state] }), words[live.state] || live.state);
  setHint(el, live.error ? live.error.message : '');
}

// atMostOnceA returns a function that calls f, now or when so many milliseconds have passed since the last call. What looks at everything
// in the cluster does so seldom, however much changes.
function atMostOnceA(pause, f, signal) {
  let timer = 0;
  let last = -pause;
  return () => {
    if (timer) return;
    timer = setTimeout(() => {
      timer = 0;
      last = performance.now();
      if (!signal.aborted) f();
    }, Math.max(0, last + pause - performance.now()));
  };
}

// noTrouble says that nothing needs attention, as far as the lists know.
function noTrouble(lists) {
  const has = (state) => lists.some((l) => l.state === state);
  if (has('retrying')) return empty('The server does not answer.', 'What is shown is what was last known.');
  if (has('loading')) return empty('Loading…');
  return empty(has('refused') ? 'Nothing that you may see needs attention.' : 'Everything is as it should be.');
}

export function show({ main, signal, ns }) {
  const tiles = h('div', { class: 'tiles' });
  const mark = h('span', { class: 'live', role: 'status' });
  const trouble = h('div', { class: 'panel-body' });
  const events = h('div', { class: 'panel-body' });
  const stuck = h('div', { class: 'tile-big' }, '…');
  const stuckNote = h('p', { class: 'tile-note' }, 'asking why');
  fill(main,
    h('div', { class: 'head' }, h('h1', null, 'Overview'), ns && h('span', { class: 'muted' }, 'namespace ' + ns), h('span', { class: 'spread' }), mark),
    tiles,
    h('div', { class: 'columns' },
      h('section', { class: 'panel', 'aria-labelledby': 'h-trouble' }, h('h2', { id: 'h-trouble' }, 'Needs attention'), trouble),
      h('section', { class: 'panel', 'aria-labelledby': 'h-events' }, h('h2', { id: 'h-events' }, 'Events'), events)));

  const tile = (title, path, body) => h('a', { class: 'tile', href: linkTo(path) }, h('span', { class: 'tile-title' }, title), body);
  const boxes = { nodes: h('div', { class: 'tile-body' }), pods: h('div', { class: 'tile-body' }), deployments: h('div', { class: 'tile-body' }) };
  fill(tiles,
    tile('Pods', 'kind/core/pods', boxes.pods), tile('Deployments', 'kind/apps/deployments', boxes.deployments),
    tile('Nodes', 'kind/core/nodes', boxes.nodes), tile('Stuck', 'stuck', h('div', { class: 'tile-body' }, stuck, stuckNote)));

  const inNs = ns ? `/namespaces/${encodeURIComponent(ns)}` : '';
  const lists = {};
  const start = (name, path, draw, { table = true, query = '' } = {}) => {
    lists[name] = new Live(path, { table, query, signal, onchange: (l, changes) => { draw(l, changes); drawMark(); } });
  };
  const drawMark = () => {
    const states = Object.values(lists);
    const pick = states.find((l) => l.state === 'retrying') || states.find((l) => l.state === 'loading') || states.find((l) => l.state === 'live') || states[0];
    liveMark(mark, pick);
    tiles.classList.toggle('is-stale', pick.state === 'retrying');
    if (pick.state === 'retrying') troubleSoon();
  };

  const meter = (box, total, parts, word) => {
    const now = JSON.stringify([total, parts]);
    if (box.dataset.now === now) return;
    box.dataset.now = now;
    const bar = h('div', { class: 'meter', 'aria-hidden': 'true' });
    for (const [state, n] of parts) {
      if (!n) continue;
      const part = h('span', { class: 'is-' + state });
      part.style.flexGrow = String(n);
      bar.appendChild(part);
    }
    fill(box, h('div', { class: 'tile-big' }, total), bar,
      h('ul', { class: 'legend' }, parts.filter(([, n]) => n).map(([state, n, text]) => h('li', { class: 'is-' + state }, icon(state), h('span', null, `${n} ${text || stateName(state).toLowerCase()}`)))),
      total === '0' && h('p', { class: 'tile-note' }, 'no ' + word));
  };
  // isUnknown fills the box of a list of which nothing is known, and says whether that is so.
  const isUnknown = (l, box) => {
    const text = l.state === 'refused' ? 'You may not list these.' : l.state === 'retrying' && !l.items.size ? 'Not known: the server does not answer.' : '';
    if (text) { fill(box, h('p', { class: 'tile-note' }, text)); delete box.dataset.now; }
    return Boolean(text);
  };

  const podStates = new Map(); // of each Pod; only those that have changed are looked at
  const podCount = {};
  const failed = new Set(); // the Pods that have failed, whatever their column Status says
  const drawFailed = (l, changes) => {
    failed.clear();
    for (const key of l.items.keys()) failed.add(key);
    if (lists.pods) drawPods(lists.pods, changes);
  };
  const drawPods = (l, changes) => {
    if (isUnknown(l, boxes.pods)) return;
    const status = column(l, 'status');
    const ready = column(l, 'ready');
    if (changes.all) { podStates.clear(); for (const k of Object.keys(podCount)) delete podCount[k]; }
    for (const key of changes.all ? l.items.keys() : changes.keys) {
      const before = podStates.get(key);
      if (before) { podCount[before]--; podStates.delete(key); }
      const r = l.items.get(key);
      if (!r) continue;
      r.state = failed.has(key) ? 'bad' : ofPodStatus(r.cells[status], r.cells[status] === 'Running' ? r.cells[ready] : '');
      podStates.set(key, r.state);
      podCount[r.state] = (podCount[r.state] || 0) + 1;
    }
    meter(boxes.pods, String(l.items.size), [['ok', podCount.ok, 'running'], ['progress', podCount.progress, 'on the way'], ['warn', podCount.warn, 'not ready'], ['bad', podCount.bad, 'failing'],
      ['idle', podCount.idle, 'completed'], ['unknown', podCount.unknown, 'unknown']], 'Pods');
    troubleSoon();
  };
  const drawDeployments = (l) => {
    if (isUnknown(l, boxes.deployments)) return;
    const ready = column(l, 'ready');
    const count = { ok: 0, progress: 0, bad: 0 };
    for (const r of l.items.values()) {
      const [a, b] = String(r.cells[ready]).split('/').map(Number);
      r.state = a === b ? 'ok' : isDown(a, b, r.meta.created) ? 'bad' : 'progress';
      count[r.state]++;
    }
    meter(boxes.deployments, String(l.items.size), [['ok', count.ok, 'ready'], ['progress', count.progress, 'not ready'], ['bad', count.bad, 'down']], 'Deployments');
    troubleSoon();
  };
  const drawNodes = (l) => {
    if (isUnknown(l, boxes.nodes)) return;
    const count = { ok: 0, warn: 0, bad: 0 };
    for (const o of l.items.values()) {
      o.kind = 'Node';
      count[healthOf(o).state]++;
    }
    meter(boxes.nodes, String(l.items.size), [['ok', count.ok, 'ready'], ['warn', count.warn, 'cordoned'], ['bad', count.bad, 'not well']], 'nodes');
    troubleSoon();
  };

  const drawTrouble = () => {
    const out = [];
    const status = lists.pods && column(lists.pods, 'status');
    for (const o of lists.nodes?.items.values() || []) {
      const health = healthOf({ ...o, kind: 'Node' });
      if (health.state === 'bad') out.push({ rank: 0, ...health, k: { group: '', resource: 'nodes' }, m: { name: o.metadata.name, created: o.metadata.creationTimestamp }, kind: 'Node' });
    }
    for (const r of lists.deployments?.items.values() || []) if (r.state && r.state !== 'ok') out.push({ rank: 1, state: r.state, text: String(r.cells[column(lists.deployments, 'ready')]) + ' ready', k: DEPLOYMENT, m: r.meta, kind: 'Deployment' });
    for (const [key, r] of lists.pods?.items || []) {
      if (r.state === 'ok' || r.state === 'idle') continue;
      if (r.state === 'bad' || r.state === 'warn' || (r.state === 'progress' && Date.now() - Date.parse(r.meta.created) > 30000)) out.push({ rank: failed.has(key) ? 3 : 2, state: r.state, text: failed.has(key) && r.cells[status] === 'Completed' ? 'Failed' : String(r.cells[status]), k: POD, m: r.meta, kind: 'Pod' });
    }
    const order = { bad: 0, warn: 1, progress: 2 };
    for (const x of out) x.at = Date.parse(x.m.created);
    out.sort((a, b) => order[a.state] - order[b.state] || a.rank - b.rank || b.at - a.at);
    if (!out.length) { fill(trouble, noTrouble(Object.values(lists))); return; }
    const focus = trouble.contains(document.activeElement) ? document.activeElement.getAttribute('href') : '';
    fill(trouble, h('ul', { class: 'rows' }, out.slice(0, 12).map((x) => h('li', null,
      h('a', { class: 'row-link', href: objectLink(x.k, x.m.namespace, x.m.name, { tab: 'why' }) },
        badge(x.state, x.text), h('span', { class: 'row-main' }, h('span', { class: 'strong' }, x.kind + ' ' + x.m.name), h('span', { class: 'muted' }, x.m.namespace)),
        h('span', { class: 'muted' }, age(x.m.created)))))),
    out.length > 12 && h('p', { class: 'hint' }, `and ${out.length - 12} more`));
    if (focus) [...trouble.querySelectorAll('a')].find((a) => a.getAttribute('href') === focus)?.focus();
  };

  const drawEvents = (l) => {
    if (l.state === 'refused') { fill(events, empty('You may not list Events here.')); return; }
    const time = (e) => e.series?.lastObservedTime || e.lastTimestamp || e.eventTime || e.metadata.creationTimestamp;
    for (const e of l.items.values()) e.at ??= Date.parse(time(e));
    const list = [...l.items.values()].sort((a, b) => b.at - a.at).slice(0, 14);
    if (!list.length && l.state === 'retrying') { fill(events, empty('The server does not answer.')); return; }
    if (!list.length && l.state !== 'loading') { fill(events, empty('No Events in the last hour.')); return; }
    fill(events, h('ul', { class: 'rows' }, list.map((e) => {
      const o = e.involvedObject || {};
      return h('li', { class: 'event' }, badge(e.type === 'Warning' ? 'warn' : 'ok', e.reason || e.type),
        h('span', { class: 'row-main' }, h('span', null, `${o.kind || ''} `, h('span', { class: 'strong' }, o.name)), h('span', { class: 'muted clamp' }, e.message)),
        h('span', { class: 'muted' }, age(time(e))));
    })));
  };

  const troubleSoon = atMostOnceA(1000, drawTrouble, signal);
  const eventsSoon = atMostOnceA(1000, () => drawEvents(lists.events), signal);
  start('pods', `/api/v1${inNs}/pods`, drawPods);
  start('deployments', `/apis/apps/v1${inNs}/deployments`, drawDeployments);
  start('failed', `/api/v1${inNs}/pods`, drawFailed, { query: FAILED });
  start('nodes', '/api/v1/nodes', drawNodes, { table: false }); // whole, because no column tells what a node is short of
  start('events', `/api/v1${inNs}/events`, eventsSoon, { table: false });

  const askStuck = async () => {
    try {
      const doc = await getJSON(TRACES + inNs + '/explanations', { signal });
      const { explanations, unseen } = splitExplanations(doc);
      const n = explanations.length;
      setText(stuck, String(n));
      stuck.className = 'tile-big ' + (n ? 'is-bad' : unseen.length ? '' : 'is-ok');
      setText(stuckNote, (n ? 'see why' : 'nothing is stuck') + (unseen.length ? ', but you may not see everything' : ''));
    } catch (e) {
      if (signal.aborted) return;
      setText(stuck, '–');
      setText(stuckNote, e.code === 404 ? 'this server does not explain' : e.message);
    }
  };
  askStuck();
  const timer = setInterval(() => { if (!document.hidden) { askStuck(); drawDeployments(lists.deployments); drawTrouble(); eventsSoon(); } }, 5000);
  signal.addEventListener('abort', () => clearInterval(timer));
}
