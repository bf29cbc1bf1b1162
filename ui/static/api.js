// Speaks to the Kubernetes API, with the rights of the viewer. Directly on the API server a bearer token is sent, which is in the
// memory of this page only. Behind "proa dashboard" the proxy adds the credentials, and the page sends the key of its session.

export const via = document.documentElement.dataset.via;
const credentials = { token: '', key: '' };
export const session = { server: '', namespace: 'default', user: '' };

// ApiError is a refusal of the server.
export class ApiError extends Error {
  constructor(code, status, fallback) {
    super(status?.message || fallback || 'the server answered ' + code);
    this.code = code;
    this.reason = status?.reason || '';
    this.causes = status?.details?.causes || [];
  }
}

export const isLoggedIn = () => via === 'proxy' ? credentials.key !== '' : credentials.token !== '';

function headers(more) {
  const out = { ...more };
  if (via === 'proxy') out['X-Proa-Dashboard'] = credentials.key || '1';
  else if (credentials.token) out.Authorization = 'Bearer ' + credentials.token;
  return out;
}

let entered = false; // whether the viewer has been let in
let onLogout = () => {};
export function whenLoggedOut(f) { onLogout = f; }

async function refusal(resp) {
  let status = null;
  let text = '';
  try {
    text = (await resp.text()).slice(0, 65536);
    status = JSON.parse(text);
  } catch { /* not a Status */ }
  if (resp.status === 401 && entered) { forget(); onLogout('You are logged out: the server no longer accepts your credentials.'); }
  return new ApiError(resp.status, status, text.slice(0, 500));
}

// request makes one request and returns the response, or throws an ApiError.
export async function request(path, o = {}) {
  const head = { Accept: o.accept || 'application/json' };
  if (o.contentType) head['Content-Type'] = o.contentType;
  const resp = await fetch(path, {
    method: o.method || 'GET', headers: headers(head), body: o.body, signal: o.signal, cache: 'no-store', credentials: 'same-origin', redirect: 'error',
  });
  if (!resp.ok) throw await refusal(resp);
  return resp;
}

export async function getJSON(path, o) { return (await request(path, o)).json(); }

export async function sendJSON(method, path, value, o) {
  return (await request(path, { method, contentType: 'application/json', body: JSON.stringify(value), ...o })).json();
}

// --- logging in ---

// hasKey says that this tab has been logged in before, and uses its key from now on. Whether it is still good, resume says.
export function hasKey() {
  if (via === 'proxy') credentials.key ||= sessionStorage.getItem('proa.key') || '';
  return credentials.key !== '';
}

// resume logs this tab in again after it was reloaded.
export async function resume(key = sessionStorage.getItem('proa.key')) {
  if (via !== 'proxy' || !key || entered) return false;
  credentials.key = key;
  try {
    keep(await getJSON('/dashboard/session'));
    return true;
  } catch {
    forget();
    return false;
  }
}

function keep(answer) {
  credentials.key = answer.key;
  session.server = answer.server;
  session.namespace = answer.namespace || 'default';
  entered = true;
  try { sessionStorage.setItem('proa.key', answer.key); } catch { /* then a reload asks again */ }
}

function forget() {
  entered = false;
  credentials.key = credentials.token = '';
  session.user = '';
  kindsPromise = null; // another viewer may see others
  sessionStorage.removeItem('proa.key');
}

// Tabs of the same origin, which includes the port, hand the key of the proxy to each other. A bearer token is never handed on.
const channel = via === 'proxy' && 'BroadcastChannel' in globalThis ? new BroadcastChannel('proa.key') : null;
channel?.addEventListener('message', (e) => { if (e.data === 'ask' && credentials.key) channel.postMessage({ key: credentials.key }); });

// resumeFromOtherTab logs this tab in if another one of the same browser answers within a while.
export async function resumeFromOtherTab() {
  if (!channel) return false;
  const key = await new Promise((resolve) => {
    const hear = (e) => { if (e.data?.key) done(e.data.key); };
    const done = (k) => { channel.removeEventListener('message', hear); resolve(k); };
    channel.addEventListener('message', hear);
    channel.postMessage('ask');
    setTimeout(() => done(''), 5000);
  });
  return resume(key);
}

export async function logInWithCode(code) { keep(await sendJSON('POST', '/dashboard/session', { code })); }

export async function logInWithToken(token) {
  credentials.token = token.trim().replace(/^Bearer\s+/i, '');
  session.server = location.origin;
  try {
    await whoAmI();
    entered = true;
  } catch (e) {
    forget();
    throw e;
  }
}

export async function logOut() {
  if (via === 'proxy') await request('/dashboard/session', { method: 'DELETE' }).catch(() => {});
  forget();
  onLogout('');
}

// whoAmI asks the server for the name of the viewer.
export async function whoAmI() {
  const review = await sendJSON('POST', '/apis/authentication.k8s.io/v1/selfsubjectreviews',
    { kind: 'SelfSubjectReview', apiVersion: 'authentication.k8s.io/v1' });
  session.user = review.status?.userInfo?.username || '';
  if (via !== 'proxy' && session.user === 'system:anonymous') throw new ApiError(401, null, 'The server does not accept this token.');
  return session.user;
}

// --- WebSockets ---

const base64url = (s) => btoa(String.fromCharCode(...new TextEncoder().encode(s))).replace(/\+/g, '-').replace(/\//g, '_').replace(/=+$/, '');

// socket opens a WebSocket with the credentials among its subprotocols, since a browser can set no headers.
export function socket(path, protocols) {
  const all = [...protocols];
  if (via === 'proxy') all.push('key.dashboard.proa.dev.' + credentials.key);
  else all.push('base64url.bearer.authorization.k8s.io.' + base64url(credentials.token));
  const ws = new WebSocket(location.origin.replace(/^http/, 'ws') + path, all);
  ws.binaryType = 'arraybuffer';
  return ws;
}

const maxQueued = 64 << 20;

// stream yields the body of an answer as it comes. Behind the proxy, which speaks HTTP/1.1, it is a WebSocket: a browser opens only
// six connections, and watches would use them up.
export async function* stream(path, { accept = 'application/json', signal } = {}) {
  if (via !== 'proxy') {
    const resp = await request(path, { accept, signal });
    const reader = resp.body.getReader();
    try {
      for (;;) {
        const { done, value } = await reader.read();
        if (done) return;
        yield value;
      }
    } finally {
      reader.cancel().catch(() => {});
    }
  }
  const ws = socket(path, ['stream.dashboard.proa.dev', 'accept.dashboard.proa.dev.' + base64url(accept)]);
  const queue = [];
  let size = 0;
  let wake = () => {};
  let ended = false;
  let failed = null;
  const end = (err) => { ended = true; failed ||= err; wake(); };
  ws.onmessage = (e) => {
    queue.push(e.data);
    size += e.data.byteLength || e.data.length;
    if (size > maxQueued) { end(new Error('more has come than the page can hold')); ws.close(); }
    wake();
  };
  ws.onclose = () => end(null);
  ws.onerror = () => end(new Error('the connection was lost'));
  const abort = () => { end(null); ws.close(); };
  signal?.addEventListener('abort', abort);
  try {
    let head = null;
    for (;;) {
      while (queue.length) {
        const data = queue.shift();
        size -= data.byteLength || data.length;
        if (head) { yield new Uint8Array(data); continue; }
        head = JSON.parse(data);
        if (head.code !== 200) {
          let status = null;
          try { status = JSON.parse(head.body); } catch { /* not a Status */ }
          throw new ApiError(head.code, status, head.body);
        }
      }
      if (ended) {
        if (failed) throw failed;
        return;
      }
      await new Promise((resolve) => { wake = resolve; });
    }
  } finally {
    signal?.removeEventListener('abort', abort);
    ws.close();
  }
}

// lines cuts a stream into lines. A line that is longer than max is cut.
export async function* lines(chunks, max = 32 << 20) {
  const decoder = new TextDecoder();
  let rest = '';
  for await (const chunk of chunks) {
    rest += decoder.decode(chunk, { stream: true });
    const parts = rest.split('\n');
    rest = parts.pop();
    for (const line of parts) yield line;
    if (rest.length > max) { yield rest; rest = ''; }
  }
  if (rest) yield rest;
}

// --- what the server has ---

const AGGREGATED = 'application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList';
let kindsPromise = null;

// kinds returns the resources that the server has, in the versions that it prefers.
export function kinds(again = false) {
  if (!kindsPromise || again) kindsPromise = loadKinds().catch((e) => { kindsPromise = null; throw e; });
  return kindsPromise;
}

async function loadKinds() {
  const out = [];
  for (const doc of await Promise.all(['/api', '/apis'].map((p) => getJSON(p, { accept: AGGREGATED })))) {
    for (const g of doc.items || []) {
      const seen = new Set();
      for (const v of g.versions || []) {
        for (const r of v.resources || []) {
          if (seen.has(r.resource) || !(r.verbs || []).includes('list')) continue;
          seen.add(r.resource);
          out.push({
            group: g.metadata?.name || '', version: v.version, resource: r.resource, kind: r.responseKind?.kind || r.resource,
            namespaced: r.scope === 'Namespaced', verbs: r.verbs, short: r.shortNames || [], subresources: (r.subresources || []).map((s) => s.subresource),
          });
        }
      }
    }
  }
  return out;
}

// findKind finds a resource by its group and plural.
export async function findKind(group, resource) {
  return (await kinds()).find((k) => k.group === group && k.resource === resource) || null;
}

// kindOf finds a resource by apiVersion and kind, as owner references name it.
export async function kindOf(apiVersion, kind) {
  const group = apiVersion.includes('/') ? apiVersion.split('/')[0] : '';
  return (await kinds()).find((k) => k.group === group && k.kind === kind) || null;
}

const seg = encodeURIComponent;
export const versionPath = (k) => k.group ? `/apis/${seg(k.group)}/${seg(k.version)}` : `/api/${seg(k.version)}`;
export const listPath = (k, ns) => versionPath(k) + (ns && k.namespaced ? `/namespaces/${seg(ns)}` : '') + '/' + seg(k.resource);
export const objectPath = (k, ns, name) => listPath(k, ns) + '/' + seg(name);
export const TRACES = '/apis/trace.proa.dev/v1';
// traceName is the name of a trace or an explanation of an object.
export const traceName = (k, name) => k.resource + (k.group ? '.' + k.group : '') + ':' + name;

// splitExplanations returns what is stuck of a list of explanations, and what the server could not read for this user. The server adds the
// latter to the list as an item with a name of its own.
export function splitExplanations(list) {
  const isUnseen = (e) => e.metadata?.name === 'not-seen';
  const items = list.items || [];
  return { explanations: items.filter((e) => !isUnseen(e)), unseen: items.filter(isUnseen).flatMap((e) => (e.unseen?.length ? e.unseen : [e.cause])) };
}

// --- list and watch ---

export const TABLE = 'application/json;as=Table;v=v1;g=meta.k8s.io,application/json';
const PAGE = 500;

const sleep = (ms, signal) => new Promise((resolve) => {
  const end = () => { clearTimeout(t); signal?.removeEventListener('abort', end); resolve(); };
  const t = setTimeout(end, ms);
  signal?.addEventListener('abort', end);
});

// keyOf is the key of an object in a list.
export const keyOf = (m) => (m.namespace ? m.namespace + '/' : '') + m.name;

// slim keeps of the metadata of a row what the page shows: ten thousand rows would be large otherwise.
function slim(m) {
  return {
    name: m.name, namespace: m.namespace || '', uid: m.uid, created: m.creationTimestamp, deleted: m.deletionTimestamp || '', labels: m.labels || {},
    owners: m.ownerReferences || [],
  };
}

// rowOf makes a row of a Table.
const rowOf = (r) => ({ cells: r.cells, meta: slim(r.object?.metadata || {}) });

const MAX_CHANGES = 20000; // keys of changes that wait for a frame; a page that nobody looks at has none

// Live is a list that stays current: it lists, watches, and lists again when the server has forgotten where it was. Its state is
// loading, live, retrying, polling or refused. It calls onchange at most once in a frame, with itself and what has changed since: the
// keys of items, or all of them.
export class Live {
  constructor(path, { table = false, query = '', onchange, signal }) {
    Object.assign(this, { path, table, query, onchange, signal });
    this.items = new Map();
    this.columns = [];
    this.state = 'loading';
    this.error = null;
    this.changes = { all: false, keys: new Set() };
    this.done = this.run();
  }

  changed() {
    if (this.changes.keys.size > MAX_CHANGES) this.changes = { all: true, keys: new Set() };
    if (this.pending) return;
    this.pending = true;
    requestAnimationFrame(() => {
      this.pending = false;
      const { changes } = this;
      this.changes = { all: false, keys: new Set() };
      if (!this.signal.aborted) this.onchange(this, changes);
    });
  }

  setState(state, error = null) {
    if (this.state === state && this.error === error) return;
    this.state = state;
    this.error = error;
    this.changed();
  }

  url(more) {
    return this.path + '?' + [this.query, ...more].filter(Boolean).join('&');
  }

  get accept() { return this.table ? TABLE : 'application/json'; }

  add(into, item) {
    if (this.table) {
      for (const r of item.rows || []) {
        const row = rowOf(r);
        into.set(keyOf(row.meta), row);
        this.changes.keys.add(keyOf(row.meta));
      }
    } else {
      into.set(keyOf(item.metadata || {}), item);
      this.changes.keys.add(keyOf(item.metadata || {}));
    }
  }

  async list() {
    const first = this.items.size === 0;
    const into = first ? this.items : new Map();
    let rv = '';
    let more = '';
    do {
      const doc = await getJSON(this.url(['limit=' + PAGE, more && 'continue=' + seg(more)]), { accept: this.accept, signal: this.signal });
      if (this.table && doc.kind !== 'Table') this.table = false; // a server without tables for this resource
      if (doc.columnDefinitions?.length) this.columns = doc.columnDefinitions;
      if (doc.kind === 'Table') this.add(into, doc);
      else for (const item of doc.items || []) this.add(into, item);
      rv = doc.metadata?.resourceVersion || '';
      more = doc.metadata?.continue || '';
      if (first) this.changed();
    } while (more && !this.signal.aborted);
    if (this.items !== into) this.changes = { all: true, keys: new Set() };
    this.items = into;
    this.changed();
    return rv;
  }

  // watch follows changes from a version on; it returns the version that it has reached, or '' when the list must be read again.
  async watch(rv) {
    const url = this.url(['watch=1', 'allowWatchBookmarks=true', 'resourceVersion=' + seg(rv)]);
    for await (const line of lines(stream(url, { accept: this.accept, signal: this.signal }))) {
      if (!line.trim()) continue;
      const e = JSON.parse(line);
      if (e.type === 'ERROR') {
        if (e.object?.code === 410) return '';
        throw new ApiError(e.object?.code || 500, e.object);
      }
      this.failures = 0;
      this.setState('live');
      const meta = e.object?.kind === 'Table' ? e.object.rows?.[0]?.object?.metadata : e.object?.metadata;
      rv = meta?.resourceVersion || e.object?.metadata?.resourceVersion || rv;
      if (e.type === 'BOOKMARK') continue;
      if (e.object?.columnDefinitions?.length) this.columns = e.object.columnDefinitions;
      if (e.type === 'DELETED') { this.items.delete(keyOf(meta || {})); this.changes.keys.add(keyOf(meta || {})); }
      else this.add(this.items, e.object);
      this.changed();
    }
    return rv;
  }

  async run() {
    this.failures = 0;
    let rv = '';
    let polling = false;
    while (!this.signal.aborted) {
      try {
        if (!rv || polling) rv = await this.list();
        if (polling) {
          this.setState('polling');
          await sleep(10000, this.signal);
          continue;
        }
        this.setState('live');
        const began = Date.now();
        rv = await this.watch(rv);
        if (Date.now() - began < 1000) await sleep(500, this.signal); // a watch that ends at once must not become a storm
      } catch (e) {
        if (this.signal.aborted) return;
        if (e.code === 410) { rv = ''; continue; }
        if (e.code === 403 && rv) { polling = true; continue; } // may list, may not watch
        if ([401, 403, 404, 405].includes(e.code)) { this.setState('refused', e); return; }
        if (e.code === 400 || e.code === 406) rv = '';
        this.failures++;
        this.setState('retrying', e);
        await sleep(Math.min(30000, 500 * 2 ** Math.min(this.failures, 6)) * (0.75 + Math.random() / 2), this.signal);
      }
    }
  }
}
