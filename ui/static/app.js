// Starts the page: logs in, draws the frame around the views, and shows the view that the address names. The part of the address
// behind "#" holds the whole state of a view.

import { h, fill, icon, announce, dialog, empty, setText, visible } from './dom.js';
import * as api from './api.js';

const views = {
  overview: { file: './overview.js', title: 'Overview' },
  stuck: { file: './stuck.js', title: 'Stuck' },
  traces: { file: './traces.js', title: 'Traces' },
  learn: { file: './learn.js', title: 'How it works' },
  create: { file: './create.js', title: 'Create' },
  kind: { file: './list.js', title: '' },
  object: { file: './object.js', title: '' },
};
export const viewNames = Object.keys(views);

const $ = (id) => document.getElementById(id);
let current = null; // { name, path, view, abort }
let kinds = [];

// --- addresses ---

export function parseHash(hash) {
  const [path, query = ''] = hash.replace(/^#\/?/, '').split('?');
  const parts = path.split('/').map((p) => { try { return decodeURIComponent(p); } catch { return p; } });
  return { name: parts[0] || 'overview', parts: parts.slice(1), path, params: new URLSearchParams(query) };
}

export const namespace = () => parseHash(location.hash).params.get('ns') || '';

const withQuery = (path, params) => {
  const q = params.toString();
  return '#/' + path + (q ? '?' + q : '');
};

// linkTo returns the address of a view, in the chosen namespace.
export function linkTo(path, more = {}) {
  const p = new URLSearchParams();
  if (namespace()) p.set('ns', namespace());
  for (const [k, v] of Object.entries(more)) if (v) p.set(k, v);
  return withQuery(path, p);
}

const seg = encodeURIComponent;
export const kindLink = (k, more) => linkTo(`kind/${seg(k.group || 'core')}/${seg(k.resource)}`, more);
export const objectLink = (k, ns, name, more) => linkTo(`object/${seg(k.group || 'core')}/${seg(k.resource)}/${seg(ns || '-')}/${seg(name)}`, more);

// setParams changes the state of the present view in the address, without showing the view anew.
export function setParams(patch) {
  const route = parseHash(location.hash);
  for (const [k, v] of Object.entries(patch)) {
    if (v === null || v === undefined || v === '') route.params.delete(k);
    else route.params.set(k, v);
  }
  history.replaceState(null, '', withQuery(route.path, route.params));
}

// --- the frame ---

const groups = [
  ['Workloads', ['pods', 'deployments.apps', 'statefulsets.apps', 'daemonsets.apps', 'replicasets.apps', 'jobs.batch', 'cronjobs.batch', 'horizontalpodautoscalers.autoscaling']],
  ['Network', ['services', 'endpointslices.discovery.k8s.io', 'ingresses.networking.k8s.io', 'networkpolicies.networking.k8s.io', 'gateways.gateway.networking.k8s.io', 'httproutes.gateway.networking.k8s.io']],
  ['Configuration', ['configmaps', 'secrets', 'resourcequotas', 'limitranges', 'poddisruptionbudgets.policy']],
  ['Storage', ['persistentvolumeclaims', 'persistentvolumes', 'storageclasses.storage.k8s.io']],
  ['Cluster', ['nodes', 'namespaces', 'events', 'customresourcedefinitions.apiextensions.k8s.io']],
  ['Access', ['serviceaccounts', 'roles.rbac.authorization.k8s.io', 'rolebindings.rbac.authorization.k8s.io', 'clusterroles.rbac.authorization.k8s.io', 'clusterrolebindings.rbac.authorization.k8s.io', 'certificatesigningrequests.certificates.k8s.io']],
];
const idOf = (k) => k.resource + (k.group ? '.' + k.group : '');
const isBuiltIn = (g) => !g.includes('.') || g.endsWith('.k8s.io');

// titleOf writes a resource as a title: ReplicaSets, Ingresses, NetworkPolicies.
export function titleOf(k) {
  const low = k.kind.toLowerCase();
  if (k.resource === low) return k.kind;
  if (k.resource === low + 's' || k.resource === low + 'es') return k.kind + k.resource.slice(low.length);
  if (low.endsWith('y') && k.resource === low.slice(0, -1) + 'ies') return k.kind.slice(0, -1) + 'ies';
  return k.resource;
}

function drawNav() {
  const by = new Map(kinds.map((k) => [idOf(k), k]));
  const used = new Set();
  const link = (path, text, pic) => h('a', { class: 'nav-link', href: linkTo(path), 'data-path': path }, pic && icon(pic), h('span', null, text));
  const kindItem = (k) => { used.add(idOf(k)); return h('li', null, link(`kind/${seg(k.group || 'core')}/${seg(k.resource)}`, titleOf(k))); };
  const section = (title, list, open) => h('details', { class: 'nav-group', open }, h('summary', null, icon('right'), title), h('ul', null, list));
  const known = groups.map(([title, ids]) => [title, ids.map((id) => by.get(id)).filter(Boolean)]);
  const blocks = known.filter(([, list]) => list.length).map(([title, list]) => section(title, list.map(kindItem), ['Workloads', 'Network', 'Cluster'].includes(title)));
  const rest = kinds.filter((k) => !used.has(idOf(k)) && k.group !== 'trace.proa.dev' && k.group !== 'metrics.k8s.io' && k.group !== 'events.k8s.io');
  const custom = rest.filter((k) => !isBuiltIn(k.group) || k.group === 'gateway.networking.k8s.io');
  const other = rest.filter((k) => !custom.includes(k));
  if (custom.length) blocks.push(section('Custom resources', custom.map(kindItem), true));
  if (other.length) blocks.push(section('More kinds', other.map(kindItem), false));
  fill($('nav'),
    h('ul', { class: 'nav-top' }, [['overview', 'Overview'], ['stuck', 'Stuck'], ['traces', 'Traces', 'trace'], ['learn', 'How it works'], ['create', 'Create']]
      .map(([path, text, pic]) => h('li', null, link(path, text, pic || path)))), blocks);
  markNav();
}

function markNav() {
  const route = parseHash(location.hash);
  const here = route.name === 'object' ? 'kind/' + route.path.split('/').slice(1, 3).join('/') : route.path.split('/').slice(0, 3).join('/') || 'overview';
  for (const a of $('nav').querySelectorAll('a')) {
    const is = a.dataset.path === here;
    if (is) {
      a.setAttribute('aria-current', 'page');
      const group = a.closest('details');
      if (group) group.open = true;
    } else {
      a.removeAttribute('aria-current');
    }
    a.setAttribute('href', linkTo(a.dataset.path));
  }
}

let namespaces = null;

function drawTools() {
  const select = h('select', { id: 'ns', class: 'select', onchange: (e) => chooseNamespace(e.target.value) });
  const fillSelect = () => {
    const names = [...(namespaces?.items.values() || [])].map((r) => r.meta?.name || r.metadata?.name).sort();
    const chosen = namespace();
    if (chosen && !names.includes(chosen)) names.unshift(chosen);
    fill(select, h('option', { value: '' }, 'All namespaces'), names.map((n) => h('option', { value: n }, n)));
    select.value = chosen;
  };
  const tools = [
    h('button', { type: 'button', class: 'search-button', onclick: openPalette, 'aria-keyshortcuts': '/' }, icon('search'), h('span', null, 'Go to'), h('kbd', null, '/')),
    h('label', { class: 'ns-label' }, h('span', { class: 'sr' }, 'Namespace'), select),
    h('button', { type: 'button', class: 'icon-button', id: 'theme', onclick: nextTheme }),
    h('button', { type: 'button', class: 'icon-button', 'aria-label': 'Keys and help', title: 'Keys and help (?)', onclick: showHelp }, icon('help')),
    h('button', { type: 'button', class: 'icon-button', 'aria-label': 'Log out', title: 'Log out', onclick: () => api.logOut() }, icon('out')),
  ];
  fill($('tools'), tools);
  drawTheme();
  const abort = new AbortController();
  frame.abort?.abort();
  frame.abort = abort;
  frame.fillSelect = fillSelect;
  fillSelect();
  namespaces = new api.Live('/api/v1/namespaces', {
    table: true, signal: abort.signal, onchange: (l) => {
      if (l.state !== 'refused') { fillSelect(); return; }
      // Whoever may not list namespaces names one.
      const input = h('input', { class: 'select', type: 'text', placeholder: 'namespace', value: namespace(), 'aria-label': 'Namespace',
        onchange: (e) => chooseNamespace(e.target.value.trim()) });
      select.replaceWith(input);
    },
  });
}
const frame = {};

function chooseNamespace(ns) {
  const route = parseHash(location.hash);
  if (ns) route.params.set('ns', ns);
  else route.params.delete('ns');
  const path = route.name === 'object' ? 'kind/' + route.path.split('/').slice(1, 3).join('/') : route.path;
  location.hash = withQuery(path || 'overview', route.params);
}

const themes = ['system', 'light', 'dark'];
const theme = () => document.documentElement.dataset.theme || 'system';

function nextTheme() {
  const next = themes[(themes.indexOf(theme()) + 1) % themes.length];
  if (next === 'system') delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = next;
  try { localStorage.setItem('proa.theme', next); } catch { /* it is forgotten then */ }
  drawTheme();
  announce('Theme: ' + next);
  window.dispatchEvent(new Event('proa-theme'));
}

function drawTheme() {
  const button = $('theme');
  if (!button) return;
  fill(button, icon('theme'));
  button.setAttribute('aria-label', 'Theme: ' + theme() + '. Change it');
  button.title = 'Theme: ' + theme();
}

// --- going somewhere by typing ---

function openPalette() {
  if (document.querySelector('dialog[open]')) return;
  const all = [
    { text: 'Overview', href: linkTo('overview') }, { text: 'Stuck', href: linkTo('stuck') }, { text: 'Traces', href: linkTo('traces') },
    { text: 'How it works', href: linkTo('learn') }, { text: 'Create', href: linkTo('create') },
    ...kinds.map((k) => ({ text: titleOf(k), note: k.group || 'core', words: [k.resource, k.kind, ...k.short].join(' ').toLowerCase(), short: k.short, href: kindLink(k), kind: k })),
  ];
  const before = document.activeElement;
  const list = h('ul', { class: 'palette-list', role: 'listbox', id: 'palette-list', 'aria-label': 'Places' });
  const input = h('input', { type: 'text', class: 'palette-input', role: 'combobox', 'aria-expanded': 'true', 'aria-controls': 'palette-list', 'aria-autocomplete': 'list',
    'aria-label': 'Go to a kind, or to an object: deploy web', placeholder: 'Kind, or kind and name: deploy web', autocomplete: 'off', spellcheck: 'false' });
  const box = h('dialog', { class: 'palette', 'aria-label': 'Go to' }, input, list);
  let shown = [];
  let at = 0;
  const draw = () => {
    const [word = '', name = ''] = input.value.trim().toLowerCase().split(/[\s/]+/);
    const score = (e) => {
      if (!word) return 1;
      if (e.short?.includes(word)) return 0;
      const t = e.text.toLowerCase();
      return t.startsWith(word) ? 1 : t.includes(word) || e.words?.includes(word) ? 2 : 9;
    };
    shown = all.map((e) => ({ ...e, score: score(e) })).filter((e) => e.score < 9).sort((a, b) => a.score - b.score).slice(0, 12);
    if (name) {
      const raw = input.value.trim().split(/[\s/]+/)[1];
      shown = shown.filter((e) => e.kind).map((e) => ({ ...e, text: e.text + ' / ' + raw, href: kindLink(e.kind, { q: raw }) }));
    }
    at = Math.min(at, Math.max(0, shown.length - 1));
    fill(list, shown.map((e, i) => h('li', { role: 'option', id: 'palette-' + i, 'aria-selected': String(i === at), onclick: () => choose(i) },
      h('span', null, e.text), e.note && h('span', { class: 'muted' }, e.note))));
    if (shown.length) input.setAttribute('aria-activedescendant', 'palette-' + at);
    else input.removeAttribute('aria-activedescendant');
  };
  const choose = (i) => { if (shown[i]) { const { href } = shown[i]; box.close(); location.hash = href; } };
  input.addEventListener('input', () => { at = 0; draw(); });
  input.addEventListener('keydown', (e) => {
    if (e.key === 'ArrowDown' || e.key === 'ArrowUp') { at = Math.max(0, Math.min(shown.length - 1, at + (e.key === 'ArrowDown' ? 1 : -1))); draw(); e.preventDefault(); }
    if (e.key === 'Enter') { e.preventDefault(); choose(at); }
  });
  box.addEventListener('close', () => { box.remove(); before?.focus?.(); });
  document.body.appendChild(box);
  draw();
  box.showModal();
  input.focus();
}

function showHelp() {
  const keys = (title, list) => h('section', null, h('h3', null, title), h('dl', { class: 'keys' }, list.map(([k, what]) => [h('dt', null, k.split(' ').map((x) => h('kbd', null, x))), h('dd', null, what)])));
  dialog('Keys', h('div', { class: 'help' },
    keys('Everywhere', [['/', 'go to a kind or an object'], ['g o', 'overview'], ['g s', 'stuck list'], ['g t', 'traces'], ['g p', 'Pods'], ['g c', 'create objects'], ['?', 'this help'], ['Esc', 'close']]),
    keys('Lists', [['↑ ↓', 'move'], ['PgUp PgDn', 'move by a page'], ['Home End', 'first, last'], ['Enter', 'open the object']]),
    keys('Traces', [['f b', 'next, previous span'], ['w s', 'scroll up, down'], ['a d', 'move left, right in time'], ['+ -', 'zoom in, out'], ['0', 'show all of it'], ['p o', 'collapse, expand one level'], ['[ ]', 'collapse, expand all'], ['Ctrl B', 'find in the trace'], ['↑ ↓', 'previous, next span in the list, not zoom as in Jaeger'], ['Shift ↑ ↓', 'zoom in, out by half, in the list'], ['Enter', 'expand or collapse the span']]),
    keys('Shell', [['Ctrl Shift L', 'leave the terminal'], ['Ctrl Shift C', 'copy'], ['Ctrl Shift V', 'paste']])),
  [{ text: 'Close', value: null, class: 'button primary' }]);
}

let pendingG = 0;
document.addEventListener('keydown', (e) => {
  if (e.ctrlKey || e.metaKey || e.altKey || !api.isLoggedIn()) return;
  const t = e.target;
  if (t.isContentEditable || /^(INPUT|TEXTAREA|SELECT)$/.test(t.tagName) || document.querySelector('dialog[open]')) return;
  if (e.key === '/') { e.preventDefault(); openPalette(); return; }
  if (e.key === '?') { e.preventDefault(); showHelp(); return; }
  if (e.key === 'g') { pendingG = Date.now(); return; }
  if (Date.now() - pendingG < 1200) {
    pendingG = 0;
    const to = { o: 'overview', s: 'stuck', t: 'traces', l: 'learn', c: 'create', p: 'kind/core/pods', d: 'kind/apps/deployments' }[e.key];
    if (to) { e.stopImmediatePropagation(); location.hash = linkTo(to); }
  }
});

// --- views ---

async function show() {
  if (!api.isLoggedIn()) return;
  const route = parseHash(location.hash);
  const known = views[route.name] ? route : parseHash('#/overview');
  const shown = known.path + ' ' + (known.params.get('ns') || '');
  if (current && current.shown === shown && current.view?.update) {
    current.view.update(known);
    return;
  }
  current?.abort.abort();
  const abort = new AbortController();
  const mine = current = { shown, abort, view: null };
  const main = $('main');
  frame.fillSelect?.();
  markNav();
  $('nav').classList.remove('open');
  $('menu').setAttribute('aria-expanded', 'false');
  try {
    const module = await import(views[known.name].file);
    if (mine !== current) return;
    const body = h('div', { class: 'view view-' + known.name });
    fill(main, body);
    setTitle(views[known.name].title);
    if (moved) { main.focus({ preventScroll: true }); main.scrollTop = 0; }
    mine.view = await module.show({ main: body, route: known, signal: abort.signal, ns: known.params.get('ns') || '', kinds });
  } catch (e) {
    if (mine !== current || abort.signal.aborted) return;
    fill(main, empty('This view could not be shown', e.message));
  }
}
let moved = false;

export function setTitle(text) {
  document.title = visible((text ? text + ' · ' : '') + 'proa');
}

// --- logging in ---

function showLogin(reason = '') {
  current?.abort.abort();
  current = null;
  kinds = [];
  window.dispatchEvent(new Event('proa-logout'));
  frame.abort?.abort();
  document.body.classList.add('logged-out');
  fill($('tools'));
  fill($('nav'));
  setText($('cluster'), '');
  setTitle('Log in');
  const proxy = api.via === 'proxy';
  const problem = h('p', { class: 'problem', role: 'alert' }, reason);
  const input = h('input', proxy
    ? { id: 'secret', class: 'input code', inputmode: 'numeric', autocomplete: 'one-time-code', maxlength: '12', required: true, 'aria-describedby': 'login-help' }
    : { id: 'secret', class: 'input', type: 'password', autocomplete: 'off', required: true, 'aria-describedby': 'login-help', spellcheck: 'false' });
  const button = h('button', { class: 'button primary', type: 'submit' }, 'Log in');
  const form = h('form', { class: 'login', onsubmit: async (e) => {
    e.preventDefault();
    button.disabled = true;
    fill(problem);
    try {
      if (proxy) await api.logInWithCode(input.value);
      else await api.logInWithToken(input.value);
      input.value = '';
      await start();
    } catch (err) {
      fill(problem, icon('bad'), ' ', err.code === 401 && !proxy ? 'The server does not accept this token.' : err.message);
      input.select();
    } finally {
      button.disabled = false;
    }
  } },
  h('h1', null, 'Log in'),
  h('label', { for: 'secret' }, proxy ? 'The code that “proa dashboard” shows in the terminal' : 'Bearer token'),
  input,
  h('p', { class: 'hint', id: 'login-help' }, proxy
    ? 'Each code lets one browser in. It is asked for because this page acts with the credentials of your kubeconfig.'
    : 'For example of “kubectl create token NAME”. It stays in the memory of this page and is gone when you close or reload it. You see what this user may see. “proa dashboard” opens this page without a token.'),
  problem, button);
  fill($('main'), form);
  input.focus();
}

async function start() {
  document.body.classList.remove('logged-out');
  setText($('cluster'), session());
  drawNav();
  drawTools();
  show();
  api.whoAmI().then(() => setText($('cluster'), session())).catch(() => {});
  try {
    kinds = await api.kinds();
    drawNav();
    window.dispatchEvent(new Event('proa-kinds'));
  } catch (e) {
    fill($('nav'), h('p', { class: 'hint' }, 'The kinds could not be read: ' + e.message));
  }
}
const session = () => [api.session.user, api.session.server.replace(/^https?:\/\//, '')].filter(Boolean).join(' @ ');

api.whenLoggedOut(showLogin);
window.addEventListener('hashchange', () => { moved = true; show(); });
$('skip').addEventListener('click', () => $('main').focus());
fill($('menu'), icon('menu'));
$('menu').addEventListener('click', () => {
  const open = $('nav').classList.toggle('open');
  $('menu').setAttribute('aria-expanded', String(open));
});
// New definitions bring new kinds.
setInterval(async () => {
  if (!api.isLoggedIn() || document.hidden) return;
  const fresh = await api.kinds(true).catch(() => null);
  if (fresh && fresh.map(idOf).join() !== kinds.map(idOf).join()) { kinds = fresh; drawNav(); }
}, 30000);

// A tab that has a key draws the page at once, and asks at the same time whether the key is still good. Nothing waits here: views import
// this module, and would wait with it.
const logInAnew = () => {
  showLogin();
  api.resumeFromOtherTab().then((yes) => { if (yes) start(); });
};
if (api.hasKey()) {
  start();
  api.resume().then((yes) => { if (yes) setText($('cluster'), session()); else logInAnew(); });
} else {
  logInAnew();
}
