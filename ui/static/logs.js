// The logs of a Pod's container, as they come. At most MAX lines are kept.

import { h, fill, empty, setText } from './dom.js';
import { stream, lines, getJSON, ApiError } from './api.js';
import { setParams } from './app.js';

const MAX = 5000;

// withoutColours removes the escape sequences that colour a text. Others stay, and are shown as symbols.
export const withoutColours = (s) => s.replace(/\u001b\[[0-9;:]*m/g, '').replace(/\r$/, '');

export function show(box, ctx) {
  const state = { pod: '', container: ctx.params.get('container') || '', previous: ctx.params.get('previous') === '1', times: ctx.params.get('times') === '1', follow: true, filter: ctx.params.get('lines') || '' };
  let abort = null;
  const kept = [];
  const out = h('div', { class: 'log', tabindex: '0', role: 'log', 'aria-live': 'off', 'aria-label': 'Log lines' });
  const status = h('span', { class: 'hint', role: 'status' });
  const podSelect = h('select', { class: 'select', 'aria-label': 'Pod', onchange: () => { state.pod = podSelect.value; setParams({ pod: state.pod }); choosePod(); } });
  const containerSelect = h('select', { class: 'select', 'aria-label': 'Container', onchange: () => { state.container = containerSelect.value; setParams({ container: state.container }); begin(); } });
  const check = (name, label) => h('label', { class: 'check' }, h('input', { type: 'checkbox', checked: state[name], onchange: (e) => { state[name] = e.target.checked; setParams({ [name]: state[name] ? '1' : '' }); begin(); } }), label);
  const follow = h('button', { type: 'button', class: 'button', 'aria-pressed': 'true', onclick: () => { state.follow = !state.follow; drawFollow(); if (state.follow) out.scrollTop = out.scrollHeight; } }, 'Follow');
  const drawFollow = () => follow.setAttribute('aria-pressed', String(state.follow));
  const filter = h('input', { type: 'search', class: 'input search', placeholder: 'Only lines with', 'aria-label': 'Only lines with', value: state.filter, oninput: () => { state.filter = filter.value; setParams({ lines: state.filter }); redraw(); } });
  fill(box, h('div', { class: 'toolbar' }, podSelect, containerSelect, follow, check('previous', 'Previous run'), check('times', 'Times'), filter, status), out);

  let pods = [];
  const choosePod = () => {
    const pod = pods.find((p) => p.metadata.name === state.pod) || pods[0];
    if (!pod) { fill(out, empty('There is no Pod.')); return; }
    state.pod = pod.metadata.name;
    const names = [...(pod.spec.containers || []), ...(pod.spec.initContainers || []), ...(pod.spec.ephemeralContainers || [])].map((c) => c.name);
    if (!names.includes(state.container)) state.container = names[0];
    fill(containerSelect, names.map((n) => h('option', { value: n }, n)));
    containerSelect.value = state.container;
    podSelect.value = state.pod;
    begin();
  };

  const lineEl = (s) => h('div', { class: 'log-line' }, s || ' ');
  const matches = (s) => !state.filter || s.toLowerCase().includes(state.filter.toLowerCase());
  const redraw = () => { fill(out, kept.filter(matches).map(lineEl)); out.scrollTop = out.scrollHeight; };
  let waiting = [];
  let timer = 0;
  const flush = () => {
    timer = 0;
    const part = document.createDocumentFragment();
    let dropped = Math.max(0, kept.length + waiting.length - MAX);
    kept.push(...waiting);
    if (dropped) kept.splice(0, dropped);
    for (const s of waiting.filter(matches)) part.appendChild(lineEl(s));
    waiting = [];
    out.appendChild(part);
    while (out.childElementCount > MAX) out.firstElementChild.remove();
    if (state.follow) out.scrollTop = out.scrollHeight;
  };
  const add = (s) => {
    waiting.push(withoutColours(s).slice(0, 16384));
    if (waiting.length > MAX) waiting.splice(0, waiting.length - MAX);
    if (!timer) timer = setTimeout(flush, 50);
  };

  const begin = async () => {
    abort?.abort();
    const mine = abort = new AbortController();
    if (ctx.signal.aborted) mine.abort();
    kept.length = 0;
    waiting = [];
    fill(out);
    setText(status, 'Connecting…');
    const q = new URLSearchParams({ container: state.container, tailLines: '1000' });
    if (state.previous) q.set('previous', 'true');
    else q.set('follow', 'true');
    if (state.times) q.set('timestamps', 'true');
    const path = `/api/v1/namespaces/${encodeURIComponent(ctx.ns)}/pods/${encodeURIComponent(state.pod)}/log?` + q;
    try {
      setText(status, state.previous ? 'Previous run' : 'Following');
      for await (const line of lines(stream(path, { accept: '*/*', signal: mine.signal }), 65536)) add(line);
      if (!mine.signal.aborted) setText(status, 'The log has ended');
    } catch (e) {
      if (mine.signal.aborted) return;
      setText(status, 'Ended');
      fill(out, empty(e instanceof ApiError && e.code === 403 ? 'You may not read these logs.' : 'There are no logs.', e.message));
    }
  };

  out.addEventListener('scroll', () => {
    const end = out.scrollHeight - out.scrollTop - out.clientHeight < 40;
    if (end !== state.follow && out.scrollHeight > out.clientHeight) { state.follow = end; drawFollow(); }
  }, { passive: true });

  const load = async () => {
    if (ctx.kind.kind === 'Pod') {
      pods = [ctx.object];
      podSelect.hidden = true;
    } else {
      const sel = ctx.object.spec?.selector?.matchLabels || {};
      const labels = Object.entries(sel).map(([k, v]) => `${k}=${v}`).join(',');
      try {
        const doc = await getJSON(`/api/v1/namespaces/${encodeURIComponent(ctx.ns)}/pods?limit=200&labelSelector=` + encodeURIComponent(labels), { signal: ctx.signal });
        pods = labels ? doc.items : [];
      } catch (e) {
        fill(out, empty('The Pods could not be listed.', e.message));
        return;
      }
      fill(podSelect, pods.map((p) => h('option', { value: p.metadata.name }, p.metadata.name)));
      state.pod = ctx.params.get('pod') || '';
    }
    choosePod();
  };
  load();
  ctx.signal.addEventListener('abort', () => abort?.abort());
  return {};
}
