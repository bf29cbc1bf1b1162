// One object: what it is, how it does, its YAML, Events, logs, shell, relatives, trace, and why it is stuck.

import { h, fill, badge, age, when, empty, dialog, announce, plural } from './dom.js';
import { Live, findKind, listPath, objectPath, getJSON, request, kindOf } from './api.js';
import { healthOf, hasHealth } from './health.js';
import { toYAML, diff, hunks } from './yaml.js';
import { kindLink, objectLink, setParams, setTitle, titleOf } from './app.js';

export async function show({ main, route, signal }) {
  const [groupPart, resource, nsPart, name] = route.parts;
  const kind = await findKind(groupPart === 'core' ? '' : groupPart, resource);
  if (!kind) { fill(main, empty('The server has no ' + resource + '.')); return null; }
  const ns = nsPart === '-' ? '' : nsPart;
  setTitle(name + ' · ' + kind.kind);

  let object = null;
  let tabView = null;
  let tabAbort = null;
  let tab = route.params.get('tab') || 'summary';
  const state = h('span', { class: 'object-state' });
  const since = h('span', { class: 'muted' });
  const actions = h('div', { class: 'row' });
  const tabs = h('div', { class: 'tabs', role: 'tablist', 'aria-label': 'About ' + name });
  const box = h('div', { class: 'tab-panel', role: 'tabpanel', id: 'tabpanel', tabindex: '0' });
  fill(main,
    h('nav', { class: 'crumbs', 'aria-label': 'Where you are' }, h('a', { href: kindLink(kind) }, titleOf(kind)), ns && h('span', { class: 'muted' }, ns)),
    h('div', { class: 'head' }, h('h1', { class: 'object-name' }, name), state, since, h('span', { class: 'spread' }), actions), tabs, box);
  fill(box, h('p', { class: 'hint' }, 'Loading…'));

  const has = {
    logs: ['Pod', 'Deployment', 'ReplicaSet', 'StatefulSet', 'DaemonSet', 'Job'].includes(kind.kind),
    shell: kind.kind === 'Pod' && kind.group === '',
  };
  const all = [['summary', 'Summary'], ['why', 'Why'], ['trace', 'Trace'], ['tree', 'Tree'], ['yaml', 'YAML'], ['events', 'Events'], has.logs && ['logs', 'Logs'], has.shell && ['shell', 'Shell']].filter(Boolean);
  if (!all.some(([id]) => id === tab)) tab = 'summary';
  const ctx = { kind, ns, name, signal: null, get object() { return object; }, params: route.params, main };

  const drawTabs = () => fill(tabs, all.map(([id, text]) => h('button', {
    type: 'button', role: 'tab', id: 'tab-' + id, class: 'tab', 'aria-selected': String(id === tab), 'aria-controls': 'tabpanel', tabindex: id === tab ? '0' : '-1',
    onclick: () => choose(id),
  }, text)));
  tabs.addEventListener('keydown', (e) => {
    const i = all.findIndex(([id]) => id === tab);
    const to = { ArrowRight: (i + 1) % all.length, ArrowLeft: (i + all.length - 1) % all.length, Home: 0, End: all.length - 1 }[e.key];
    if (to === undefined) return;
    e.preventDefault();
    choose(all[to][0]);
    document.getElementById('tab-' + tab).focus();
  });

  const choose = (id) => {
    if (id === tab && tabView) return;
    tab = id;
    setParams({ tab: id === 'summary' ? '' : id, sel: '', t: '', hide: '', fold: '', order: '', find: '', lines: '', previous: '', times: '' });
    ctx.params = new URLSearchParams(location.hash.split('?')[1] || '');
    drawTabs();
    open();
  };

  const open = async () => {
    tabAbort?.abort();
    const mine = tabAbort = new AbortController();
    if (signal.aborted) mine.abort();
    tabView = null;
    box.setAttribute('aria-labelledby', 'tab-' + tab);
    box.className = 'tab-panel tab-' + tab;
    const from = { yaml: { show: showYAML }, summary: { show: showSummary }, events: { show: showEvents } }[tab] || await import({ logs: './logs.js', shell: './shell.js', tree: './tree.js', trace: './trace.js', why: './why.js' }[tab]);
    if (mine.signal.aborted) return;
    fill(box);
    tabView = from.show(box, { ...ctx, get object() { return object; }, signal: mine.signal }) || {};
  };

  const drawHead = () => {
    if (!object) return;
    const health = healthOf(object);
    fill(state, hasHealth(object) ? badge(health.state, health.text) : null);
    fill(since, age(object.metadata.creationTimestamp) + ' old');
  };
  fill(actions,
    h('button', { type: 'button', class: 'button', onclick: () => choose('yaml') }, 'Edit'),
    kind.verbs.includes('delete') && h('button', { type: 'button', class: 'button danger', onclick: () => remove(kind, ns, name) }, 'Delete'));
  drawTabs();

  const got = (o) => {
    const first = !object;
    object = o;
    if (!object.kind) { object.kind = kind.kind; object.apiVersion = (kind.group ? kind.group + '/' : '') + kind.version; }
    drawHead();
    if (first) open();
    else tabView?.update?.(object);
  };
  const path = objectPath(kind, ns, name);
  const live = new Live(listPath(kind, ns), { signal, query: 'fieldSelector=' + encodeURIComponent('metadata.name=' + name), onchange: async (l) => {
    const o = l.items.get((ns ? ns + '/' : '') + name);
    if (o) { got(o); return; }
    if (l.state === 'refused') { poll(); return; }
    if (l.state === 'loading' || l.state === 'retrying') return;
    if (object) { fill(state, badge('idle', 'Deleted')); announce(name + ' was deleted'); return; }
    fill(box, empty(`There is no ${kind.kind} ${name}${ns ? ' in the namespace ' + ns : ''}.`));
  } });
  // Whoever may get an object and not list it reads it again and again.
  let next = 0;
  const poll = async () => {
    try {
      got(await getJSON(path, { signal }));
    } catch (e) {
      if (signal.aborted) return;
      if (!object) fill(box, empty(e.code === 403 ? 'You may not see this object.' : 'The object could not be read.', e.message));
      if (e.code === 403 || e.code === 404) return;
    }
    if (!signal.aborted) next = setTimeout(poll, 5000);
  };
  const timer = setInterval(drawHead, 1000);
  signal.addEventListener('abort', () => { clearInterval(timer); clearTimeout(next); tabAbort?.abort(); });
  void live;

  return {
    update(to) {
      const chosen = to.params.get('tab') || 'summary';
      ctx.params = to.params;
      if (chosen !== tab) { tab = chosen; drawTabs(); open(); } else tabView?.navigate?.(to.params);
    },
  };
}

async function remove(kind, ns, name) {
  const yes = await dialog('Delete ' + name + '?', h('p', null, `The ${kind.kind} ${name}${ns ? ' of the namespace ' + ns : ''} and what belongs to it will be deleted.`),
    [{ text: 'Keep it', value: false }, { text: 'Delete', value: true, class: 'button danger' }]);
  if (!yes) return;
  try {
    await request(objectPath(kind, ns, name) + '?propagationPolicy=Background', { method: 'DELETE' });
    announce(name + ' is being deleted');
  } catch (e) {
    dialog('It was not deleted', h('p', null, e.message), [{ text: 'Close', value: null, class: 'button primary' }]);
  }
}

// --- summary ---

function facts(list) {
  return h('dl', { class: 'facts' }, list.filter(([, v]) => v !== undefined && v !== null && v !== '' && v !== false).map(([k, v]) => [h('dt', null, k), h('dd', null, v)]));
}

const chips = (map) => {
  const entries = Object.entries(map || {});
  return entries.length ? h('ul', { class: 'chips' }, entries.map(([k, v]) => h('li', { class: 'chip' }, k + (v ? '=' + v : '')))) : '';
};

function showSummary(box, ctx) {
  const draw = () => {
    const o = ctx.object;
    const m = o.metadata;
    const owners = h('ul', { class: 'plain' }, (m.ownerReferences || []).map((r) => {
      const li = h('li', null, `${r.kind} ${r.name}`);
      kindOf(r.apiVersion, r.kind).then((k) => { if (k) fill(li, h('a', { href: objectLink(k, k.namespaced ? ctx.ns : '', r.name) }, `${r.kind} ${r.name}`)); }).catch(() => {});
      return li;
    }));
    const s = o.status || {};
    const conditions = s.conditions || [];
    const containers = o.kind === 'Pod' ? [...(o.spec.initContainers || []), ...(o.spec.containers || [])] : o.spec?.template?.spec?.containers || [];
    const statuses = new Map([...(s.initContainerStatuses || []), ...(s.containerStatuses || [])].map((c) => [c.name, c]));
    const nodeLink = o.spec?.nodeName && o.kind === 'Pod' ? h('a', { href: objectLink({ group: '', resource: 'nodes' }, '', o.spec.nodeName) }, o.spec.nodeName) : '';
    fill(box,
      h('div', { class: 'columns' },
        h('section', { class: 'panel' }, h('h2', null, 'Facts'), facts([
          ['Kind', o.apiVersion + ' ' + o.kind], ['Namespace', m.namespace], ['Created', m.creationTimestamp && when(m.creationTimestamp)], ['Deleted', m.deletionTimestamp && when(m.deletionTimestamp)],
          ['Owner', m.ownerReferences?.length ? owners : ''], ['Node', nodeLink], ['Address', s.podIP || o.spec?.clusterIP || ''],
          ['Replicas', o.spec?.replicas !== undefined ? `${s.readyReplicas || 0} of ${o.spec.replicas} ready` : ''],
          ['Labels', chips(m.labels)], ['Finalizers', chips(Object.fromEntries((m.finalizers || []).map((f) => [f, ''])))], ['UID', h('code', null, m.uid)], ['Revision', m.resourceVersion],
        ])),
        conditions.length > 0 && h('section', { class: 'panel' }, h('h2', null, 'Conditions'), h('ul', { class: 'rows' }, conditions.map((c) => {
          const good = c.status === 'True' ? !/Pressure|Failure|Failed|Unavailable|Disrupt/.test(c.type) : c.status === 'False' ? /Pressure|Failure|Failed|Unavailable|Disrupt/.test(c.type) : null;
          return h('li', { class: 'event' }, badge(good === null ? 'unknown' : good ? 'ok' : 'warn', `${c.type}: ${c.status}`),
            h('span', { class: 'row-main' }, h('span', null, c.reason || ''), h('span', { class: 'muted' }, c.message || '')),
            h('span', { class: 'muted', title: c.lastTransitionTime || '' }, age(c.lastTransitionTime || c.lastProbeTime)));
        })))),
      containers.length > 0 && h('section', { class: 'panel' }, h('h2', null, 'Containers'), h('ul', { class: 'rows' }, containers.map((c) => {
        const st = statuses.get(c.name);
        const how = st?.state?.running ? [st.ready ? 'ok' : 'progress', st.ready ? 'Ready' : 'Running, not ready'] : st?.state?.waiting ? [/Creating|Initializing/.test(st.state.waiting.reason || '') ? 'progress' : 'bad', st.state.waiting.reason || 'Waiting']
          : st?.state?.terminated ? [st.state.terminated.exitCode === 0 ? 'idle' : 'bad', `${st.state.terminated.reason || 'Ended'} (${st.state.terminated.exitCode})`] : null;
        return h('li', { class: 'event' }, how ? badge(how[0], how[1]) : badge('idle', 'Template'),
          h('span', { class: 'row-main' }, h('span', { class: 'strong' }, c.name), h('span', { class: 'muted' }, c.image), st?.state?.waiting?.message && h('span', { class: 'muted' }, st.state.waiting.message)),
          h('span', { class: 'muted' }, st ? plural(st.restartCount, 'restart') : ''));
      }))),
      Object.keys(m.annotations || {}).length > 0 && h('section', { class: 'panel' }, h('h2', null, 'Annotations'), facts(Object.entries(shownObject(o, {}).metadata.annotations).map(([k, v]) => [k, h('span', { class: 'clamp3' }, v || '(empty)')]))));
  };
  draw();
  return { update: draw };
}

// --- events ---

export function showEvents(box, ctx) {
  const where = ctx.ns || 'default';
  const uid = ctx.object.metadata.uid;
  const draw = (l) => {
    if (l.state === 'refused') { fill(box, empty('You may not list Events in the namespace ' + where + '.', l.error.message)); return; }
    const time = (e) => e.series?.lastObservedTime || e.lastTimestamp || e.eventTime || e.metadata.creationTimestamp;
    const list = [...l.items.values()].sort((a, b) => Date.parse(time(b)) - Date.parse(time(a)));
    if (!list.length) { if (l.state !== 'loading') fill(box, empty('No Events about this object.', 'The server keeps Events for an hour.')); return; }
    fill(box, h('ul', { class: 'rows panel' }, list.slice(0, 200).map((e) => h('li', { class: 'event' },
      badge(e.type === 'Warning' ? 'warn' : 'ok', e.reason || e.type),
      h('span', { class: 'row-main' }, h('span', null, e.message), h('span', { class: 'muted' }, e.source?.component || e.reportingComponent || '', (e.count || e.series?.count || 1) > 1 && ` · ${e.count || e.series.count} times`)),
      h('span', { class: 'muted', title: time(e) }, age(time(e)))))), list.length > 200 && h('p', { class: 'hint' }, `The latest 200 of ${list.length}.`));
  };
  const live = new Live(`/api/v1/namespaces/${encodeURIComponent(where)}/events`, { signal: ctx.signal, query: 'fieldSelector=' + encodeURIComponent('involvedObject.uid=' + uid), onchange: draw });
  const timer = setInterval(() => draw(live), 5000);
  ctx.signal.addEventListener('abort', () => clearInterval(timer));
}

// --- YAML ---

const HIDDEN = '(hidden)';

// holdsObject says that an annotation holds the object as somebody has applied it, with the values of a Secret in it. kubectl apply writes
// such an annotation, and so do other programs, under names of their own, as JSON or compressed.
const holdsObject = (name, value) => name.includes('last-applied') || /^\s*[{[]/.test(value);

// shownObject leaves out what only machines need, and the values of a Secret unless they are asked for. Of those that differ from the ones
// of the object before it says so.
export function shownObject(o, { managed, values, before }) {
  const copy = structuredClone(o);
  if (!managed) delete copy.metadata.managedFields;
  if (copy.kind !== 'Secret' || values) return copy;
  const hide = (map, had, which = () => true) => {
    for (const [k, v] of Object.entries(map || {})) if (which(k, v)) map[k] = HIDDEN + (before && had?.[k] !== v ? ' (changed)' : '');
  };
  hide(copy.data, before?.data);
  hide(copy.stringData, before?.stringData);
  hide(copy.metadata.annotations, before?.metadata.annotations, holdsObject);
  return copy;
}

function showYAML(box, ctx) {
  const show = { managed: false, values: false };
  const secret = ctx.object.kind === 'Secret';
  let editing = false;
  const text = h('pre', { class: 'code-block', tabindex: '0', 'aria-label': 'YAML of ' + ctx.name });
  const draw = () => { if (!editing) fill(text, toYAML(shownObject(ctx.object, show))); };
  const toggle = (name, label) => h('label', { class: 'check' }, h('input', { type: 'checkbox', onchange: (e) => { show[name] = e.target.checked; draw(); } }), label);
  const bar = h('div', { class: 'toolbar' });
  const body = h('div', { class: 'stack' });

  const reading = () => {
    editing = false;
    fill(bar, h('button', { type: 'button', class: 'button primary', onclick: edit }, 'Edit'), toggle('managed', 'Managed fields'), secret && toggle('values', 'Show the values'),
      h('button', { type: 'button', class: 'button', onclick: async () => { await navigator.clipboard?.writeText(text.textContent); announce('Copied'); } }, 'Copy'));
    show.managed = show.values = false;
    draw();
    fill(body, text);
  };

  const edit = async () => {
    if (secret && !show.values && !await dialog('Show the values of ' + ctx.name + '?', h('p', null, 'Whoever edits a Secret sees its values, and so does whoever sees this screen.'),
      [{ text: 'Keep them hidden', value: false }, { text: 'Show and edit', value: true, class: 'button primary' }])) return;
    if (ctx.signal.aborted) return;
    editing = true;
    const before = toYAML(shownObject(ctx.object, { managed: false, values: true }));
    const area = h('textarea', { class: 'editor', spellcheck: 'false', 'aria-label': 'YAML of ' + ctx.name, autocomplete: 'off' });
    area.value = before;
    area.rows = Math.min(40, before.split('\n').length + 1);
    const answer = h('div', { class: 'stack', role: 'status' });
    const apply = h('button', { type: 'button', class: 'button primary', disabled: true, onclick: () => put(false) }, 'Apply');
    const check = h('button', { type: 'button', class: 'button', onclick: () => put(true) }, 'Check (dry run)');
    let checked = null;
    area.addEventListener('input', () => { apply.disabled = area.value !== checked; });
    area.addEventListener('keydown', (e) => { if (e.key === 'Enter' && (e.ctrlKey || e.metaKey)) put(apply.disabled); });
    const put = async (dry) => {
      const sent = area.value;
      check.disabled = apply.disabled = true;
      try {
        const resp = await request(objectPath(ctx.kind, ctx.ns, ctx.name) + '?fieldManager=proa-dashboard&fieldValidation=Strict' + (dry ? '&dryRun=All' : ''),
          { method: 'PUT', contentType: 'application/yaml', body: sent });
        const warnings = warningsOf(resp.headers.get('Warning'));
        const result = await resp.json();
        if (dry) {
          checked = sent;
          const now = toYAML(shownObject(result, { managed: false, values: true }));
          fill(answer, warnings, showDiff(before, now));
          apply.disabled = area.value !== checked;
          if (!apply.disabled) apply.focus();
        } else {
          announce('Applied');
          reading();
          fill(body, h('p', { class: 'good', role: 'status' }, 'Applied as revision ' + result.metadata.resourceVersion + '.'), warnings, text);
        }
      } catch (e) {
        fill(answer, h('div', { class: 'problem', role: 'alert' }, h('p', null, badge('bad', e.code === 409 ? 'The object has changed meanwhile' : dry ? 'The server would refuse it' : 'The server refused it')),
          h('p', null, e.message), e.causes.length > 0 && h('ul', null, e.causes.map((c) => h('li', null, (c.field ? c.field + ': ' : '') + c.message))),
          e.code === 409 && h('button', { type: 'button', class: 'button', onclick: edit }, 'Begin again with the present object')));
        if (!dry) apply.disabled = false;
      } finally {
        check.disabled = false;
      }
    };
    fill(bar, check, apply, h('button', { type: 'button', class: 'button', onclick: reading }, 'Cancel'), h('span', { class: 'hint' }, 'Check shows what would change. Nothing is written before you apply.'));
    fill(body, area, answer);
    area.focus();
    area.setSelectionRange(0, 0);
  };

  fill(box, bar, body);
  reading();
  return { update: draw };
}

// warningsOf shows the Warning headers of an answer.
export function warningsOf(header) {
  const out = [...(header || '').matchAll(/299 \S+ "((?:[^"\\]|\\.)*)"/g)].map((m) => m[1].replace(/\\(.)/g, '$1'));
  return out.length ? h('ul', { class: 'plain' }, out.map((w) => h('li', null, badge('warn', w)))) : null;
}

export function showDiff(a, b) {
  const all = diff(a, b);
  const added = all.filter(([m]) => m === '+').length;
  const removed = all.filter(([m]) => m === '-').length;
  if (!added && !removed) return h('p', { class: 'hint' }, 'Nothing would change.');
  const names = { '+': 'added', '-': 'removed', ' ': '' };
  return h('div', { class: 'stack' }, h('p', null, `The server would accept it. ${plural(added, 'line')} added, ${removed} removed:`),
    h('div', { class: 'code-block diff', tabindex: '0', role: 'group', 'aria-label': 'Difference' }, hunks(all).map((l) => (l === null ? h('div', { class: 'diff-gap' }, '⋯')
      : h('div', { class: l[0] === '+' ? 'diff-add' : l[0] === '-' ? 'diff-del' : '' }, h('span', { class: 'diff-mark' }, l[0], names[l[0]] && h('span', { class: 'sr' }, names[l[0]])), l[1])))));
}
