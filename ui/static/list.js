// The objects of one kind, as the columns that the server prints, live. Only the rows in sight are in the document.

import { h, fill, setText, icon, age, empty, announce } from './dom.js';
import { Live, findKind, listPath } from './api.js';
import { ofPodStatus } from './health.js';
import { objectLink, setParams, setTitle, titleOf, parseHash } from './app.js';
import { liveMark } from './overview.js';

const ROW = 36;
const SPARE = 8; // rows above and below the ones in sight

export async function show({ main, route, signal, ns }) {
  const group = route.parts[0] === 'core' ? '' : route.parts[0];
  const kind = await findKind(group, route.parts[1]);
  if (!kind) { fill(main, empty('The server has no ' + route.parts[1] + '.')); return null; }
  setTitle(titleOf(kind));

  const state = { q: route.params.get('q') || '', sort: route.params.get('sort') || '', wide: route.params.get('wide') === '1' };
  const count = h('span', { class: 'muted', role: 'status' });
  const mark = h('span', { class: 'live' });
  const search = h('input', { type: 'search', class: 'input search', placeholder: 'Search', 'aria-label': 'Search in ' + titleOf(kind), value: state.q, spellcheck: 'false',
    oninput: () => { state.q = search.value; setParams({ q: state.q }); refilter(); } });
  const wide = h('button', { type: 'button', class: 'button', 'aria-pressed': String(state.wide), onclick: () => {
    state.wide = !state.wide;
    wide.setAttribute('aria-pressed', String(state.wide));
    setParams({ wide: state.wide ? '1' : '' });
    columnsKey = '';
    refilter();
  } }, 'More columns');
  const headRow = h('div', { class: 'grid-row grid-head', role: 'row' });
  const block = h('div', { class: 'grid-block', role: 'presentation' });
  const spacer = h('div', { class: 'grid-spacer', role: 'presentation' }, block);
  const body = h('div', { class: 'grid-scroll', role: 'rowgroup' }, spacer);
  const grid = h('div', { class: 'grid hidden', role: 'grid', tabindex: '0', 'aria-label': titleOf(kind) }, h('div', { role: 'rowgroup' }, headRow), body);
  const note = h('div', { class: 'note' });
  fill(main, h('div', { class: 'head' }, h('h1', null, titleOf(kind)), count, h('span', { class: 'spread' }), mark, search, wide), note, grid);

  let columns = [];
  let columnsKey = '';
  let rows = []; // after search and sorting
  let pool = [];
  let first = 0;
  let active = -1;
  let activeKey = '';

  const live = new Live(listPath(kind, ns), { table: true, signal, onchange: () => { liveMark(mark, live); refilter(); } });
  liveMark(mark, live);

  // chooseColumns decides which columns there are, with their widths.
  const chooseColumns = () => {
    const list = [];
    if (live.table) live.columns.forEach((c, i) => { if (c.priority === 0 || state.wide) list.push({ name: c.name, get: (r) => r.cells[i], about: c.description }); });
    else list.push({ name: 'Name', get: (r) => r.metadata?.name });
    const name = list.findIndex((c) => c.name.toLowerCase() === 'name');
    if (kind.namespaced && !ns) list.splice(name + 1, 0, { name: 'Namespace', get: (r) => meta(r).namespace });
    const ageColumn = list.find((c) => c.name === 'Age');
    if (ageColumn) Object.assign(ageColumn, { get: (r) => age(meta(r).created), by: (r) => -Date.parse(meta(r).created), isAge: true });
    const status = list.find((c) => c.name === 'Status');
    const ready = list.find((c) => c.name === 'Ready');
    if (kind.kind === 'Pod' && status) status.state = (r) => ofPodStatus(status.get(r), status.get(r) === 'Running' ? ready?.get(r) : '');
    else if (kind.kind === 'Node' && status) status.state = (r) => (!String(status.get(r)).startsWith('Ready') ? 'bad' : String(status.get(r)).includes('Disabled') ? 'warn' : 'ok');
    else if (status) status.state = (r) => ({ Active: 'ok', Bound: 'ok', Available: 'ok', Complete: 'ok', Running: 'progress', Terminating: 'progress', Pending: 'progress', Failed: 'bad', Lost: 'bad' })[status.get(r)] || '';
    else if (ready && /^\d+\/\d+$/.test(String(rows[0] ? ready.get(rows[0]) : ''))) ready.state = (r) => { const [a, b] = String(ready.get(r)).split('/'); return a === b ? 'ok' : 'progress'; };
    const type = list.find((c) => c.name === 'Type');
    if (kind.resource === 'events' && type) type.state = (r) => (type.get(r) === 'Warning' ? 'warn' : 'ok');
    const sample = rows.slice(0, 200);
    const width = (c) => Math.min(c.name === 'Name' ? 60 : 40, Math.max(c.name.length + 3, ...sample.map((r) => String(c.get(r) ?? '').length + (c.state ? 3 : 0)))) + 2;
    columns = list;
    const template = list.map((c) => { const w = width(c); return `minmax(${Math.min(w, 14)}ch, ${w}fr)`; }).join(' ');
    grid.style.setProperty('--columns', template);
    fill(headRow, list.map((c) => h('div', { role: 'columnheader', class: 'grid-cell', 'aria-sort': sortOf(c) },
      h('button', { type: 'button', tabindex: '0', class: 'sort', title: c.about || '', onclick: () => {
        state.sort = state.sort === c.name ? '-' + c.name : c.name;
        setParams({ sort: state.sort });
        columnsKey = '';
        refilter();
      } }, c.name, state.sort.replace(/^-/, '') === c.name && h('span', { class: 'sort-mark', 'aria-hidden': 'true' }, state.sort.startsWith('-') ? '▾' : '▴')))));
    grid.setAttribute('aria-colcount', String(list.length));
    pool = [];
    fill(block);
  };
  const sortOf = (c) => (state.sort === c.name ? 'ascending' : state.sort === '-' + c.name ? 'descending' : 'none');
  const meta = (r) => r.meta || { name: r.metadata?.name, namespace: r.metadata?.namespace || '', created: r.metadata?.creationTimestamp, labels: r.metadata?.labels || {} };
  const keyOfRow = (r) => meta(r).namespace + '/' + meta(r).name;

  const refilter = () => {
    const words = state.q.toLowerCase().split(/\s+/).filter(Boolean);
    let list = [...live.items.values()];
    if (words.length) {
      list = list.filter((r) => {
        const m = meta(r);
        const text = [m.namespace, m.name, ...(r.cells || []), ...Object.entries(m.labels).map(([k, v]) => k + '=' + v)].join(' ').toLowerCase();
        return words.every((w) => text.includes(w));
      });
    }
    rows = list;
    const key = live.table + live.columns.map((c) => c.name).join() + (list.length > 0);
    if (key !== columnsKey) { columnsKey = key; chooseColumns(); }
    const by = columns.find((c) => c.name === state.sort.replace(/^-/, ''));
    const sign = state.sort.startsWith('-') ? -1 : 1;
    const collator = new Intl.Collator(undefined, { numeric: true });
    const keys = new Map(list.map((r) => [r, by ? (by.by ? by.by(r) : by.get(r)) : keyOfRow(r)]));
    list.sort((a, b) => {
      const x = keys.get(a);
      const y = keys.get(b);
      const d = typeof x === 'number' && typeof y === 'number' ? x - y : collator.compare(String(x ?? ''), String(y ?? ''));
      return sign * d || (keyOfRow(a) < keyOfRow(b) ? -1 : 1);
    });
    if (activeKey) active = list.findIndex((r) => keyOfRow(r) === activeKey);
    const all = live.items.size;
    setText(count, words.length ? `${list.length} of ${all}` : live.state === 'loading' ? `${all}…` : String(all));
    grid.setAttribute('aria-rowcount', String(list.length + 1));
    spacer.style.height = list.length * ROW + 'px';
    if (live.state === 'refused') fill(note, empty(live.error.code === 403 ? 'You may not list these objects.' : 'They could not be listed.', live.error.message));
    else if (!list.length && live.state !== 'loading') fill(note, empty(words.length ? 'Nothing matches.' : 'There are none' + (ns ? ' in the namespace ' + ns : '') + '.'));
    else fill(note);
    grid.classList.toggle('hidden', !list.length);
    draw(true);
  };

  const makeRow = () => {
    const cells = columns.map((c) => {
      const text = h('span', { class: 'cell-text' });
      const inner = c.name === 'Name' ? h('a', { class: 'cell-text', href: '#', tabindex: '-1' }) : text;
      return { el: h('div', { role: 'gridcell', class: 'grid-cell' }, inner), inner, state: '' };
    });
    const el = h('div', { class: 'grid-row', role: 'row' }, cells.map((c) => c.el));
    const row = { el, cells, index: -1 };
    el.addEventListener('click', (e) => { if (!e.target.closest('a')) { setActive(row.index); } });
    el.addEventListener('dblclick', () => open(row.index));
    return row;
  };

  const fillRow = (row, index) => {
    const r = rows[index];
    row.index = index;
    row.el.id = 'row-' + index;
    row.el.setAttribute('aria-rowindex', String(index + 2));
    row.el.classList.toggle('active', index === active);
    row.el.setAttribute('aria-selected', String(index === active));
    columns.forEach((c, i) => {
      const cell = row.cells[i];
      const value = c.get(r);
      const text = value === null || value === undefined ? '' : typeof value === 'object' ? JSON.stringify(value) : String(value);
      setText(cell.inner, text);
      if (cell.inner.title !== text) cell.inner.title = text.length > 24 ? text : '';
      if (cell.inner.tagName === 'A') {
        const href = objectLink(kind, meta(r).namespace, meta(r).name);
        if (cell.inner.getAttribute('href') !== href) cell.inner.setAttribute('href', href);
      }
      const s = c.state ? c.state(r) : '';
      if (s !== cell.state) {
        cell.state = s;
        cell.el.className = 'grid-cell' + (s ? ' has-state is-' + s : '');
        cell.el.querySelector('svg')?.remove();
        if (s) cell.el.prepend(icon(s));
      }
    });
  };

  const draw = (force = false) => {
    const seen = Math.ceil(body.clientHeight / ROW) || 30;
    const from = Math.max(0, Math.min(Math.floor(body.scrollTop / ROW) - SPARE, rows.length - seen - 2 * SPARE));
    const n = Math.min(rows.length - from, seen + 2 * SPARE);
    if (!force && from === first && n === pool.length) return;
    first = from;
    while (pool.length < n) { const row = makeRow(); pool.push(row); block.appendChild(row.el); }
    while (pool.length > n) pool.pop().el.remove();
    block.style.transform = `translateY(${from * ROW}px)`;
    for (let i = 0; i < n; i++) fillRow(pool[i], from + i);
    if (active >= from && active < from + n) grid.setAttribute('aria-activedescendant', 'row-' + active);
    else grid.removeAttribute('aria-activedescendant');
  };

  const setActive = (i) => {
    if (!rows.length) return;
    active = Math.max(0, Math.min(rows.length - 1, i));
    activeKey = keyOfRow(rows[active]);
    const top = active * ROW;
    if (top < body.scrollTop) body.scrollTop = top;
    if (top + ROW > body.scrollTop + body.clientHeight) body.scrollTop = top + ROW - body.clientHeight;
    draw(true);
  };
  const open = (i) => { if (rows[i]) location.hash = objectLink(kind, meta(rows[i]).namespace, meta(rows[i]).name); };

  let frame = 0;
  body.addEventListener('scroll', () => { if (!frame) frame = requestAnimationFrame(() => { frame = 0; draw(); }); }, { passive: true });
  grid.addEventListener('focus', () => { if (active < 0 && rows.length) setActive(Math.floor(body.scrollTop / ROW)); });
  grid.addEventListener('keydown', (e) => {
    if (e.target.closest('button')) return;
    const page = Math.max(1, Math.floor(body.clientHeight / ROW) - 1);
    const to = { ArrowDown: active + 1, ArrowUp: active - 1, PageDown: active + page, PageUp: active - page, Home: 0, End: rows.length - 1 }[e.key];
    if (to !== undefined) { e.preventDefault(); setActive(to); announce(meta(rows[active] || {}).name || ''); }
    if (e.key === 'Enter') { e.preventDefault(); open(active); }
  });
  const resize = new ResizeObserver(() => draw(true));
  resize.observe(body);
  const timer = setInterval(() => { if (!document.hidden) draw(true); }, 1000); // ages grow
  signal.addEventListener('abort', () => { clearInterval(timer); resize.disconnect(); });

  return {
    update(to) {
      state.q = to.params.get('q') || '';
      state.sort = to.params.get('sort') || '';
      if (search.value !== state.q) search.value = state.q;
      columnsKey = '';
      refilter();
    },
  };
}
