// The objects of one kind, as the columns that the server prints, live. Only the rows in sight are in the document.

import { h, fill, setText, setHint, icon, age, empty, announce } from './dom.js';
import { Live, findKind, keyOf, listPath } from './api.js';
import { FAILED, healthOf, ofPodStatus } from './health.js';
import { objectLink, setParams, setTitle, titleOf, parseHash } from './app.js';
import { liveMark } from './overview.js';
import { Rows, natural } from './rows.js';

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
    oninput: () => { state.q = search.value; schedule({ search: true }); } });
  const wide = h('button', { type: 'button', class: 'button', 'aria-pressed': String(state.wide), onclick: () => {
    state.wide = !state.wide;
    wide.setAttribute('aria-pressed', String(state.wide));
    setParams({ wide: state.wide ? '1' : '' });
    columnsKey = '';
    schedule({ sort: true });
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
  let pool = []; // the rows in the document, in their order
  let active = -1;
  let activeKey = '';
  const meta = (r) => r.meta || { name: r.metadata?.name, namespace: r.metadata?.namespace || '', created: r.metadata?.creationTimestamp, labels: r.metadata?.labels || {} };
  const rows = new Rows((r) => {
    const m = meta(r);
    return [m.namespace, m.name, ...(r.cells || []), ...Object.entries(m.labels).map(([k, v]) => k + '=' + v)].join(' ').toLowerCase();
  });
  const words = () => state.q.toLowerCase().split(/\s+/).filter(Boolean);
  rows.search(words());

  // What has changed since the last frame. Everything waits for the next one: however many changes come, a frame is drawn once.
  const todo = { all: false, keys: new Set(), sort: false, search: false, frame: 0 };
  const schedule = (what = {}) => {
    Object.assign(todo, what);
    if (!todo.frame) todo.frame = requestAnimationFrame(paint);
  };
  const live = new Live(listPath(kind, ns), { table: true, signal, onchange: (l, changes) => {
    todo.all ||= changes.all;
    for (const key of changes.keys) todo.keys.add(key);
    schedule();
  } });
  liveMark(mark, live);
  // What the columns do not tell: which Pods have failed although their containers ended well, and what nodes are short of.
  let more = null;
  const moreChanged = (l, changes) => {
    if (changes.all) todo.all = true;
    for (const key of changes.keys) todo.keys.add(key);
    schedule();
  };
  if (kind.kind === 'Pod' && kind.group === '') more = new Live(listPath(kind, ns), { table: true, signal, query: FAILED, onchange: moreChanged });
  if (kind.kind === 'Node' && kind.group === '') more = new Live(listPath(kind, ns), { signal, onchange: moreChanged });
  const hasFailed = (r) => kind.kind === 'Pod' && Boolean(more?.items.has(keyOf(meta(r))));
  const nodeHealth = (r) => { const o = more?.items.get(keyOf(meta(r))); return o && healthOf({ ...o, kind: 'Node' }); };

  // chooseColumns decides which columns there are, with their widths.
  const chooseColumns = () => {
    const list = [];
    if (live.table) live.columns.forEach((c, i) => { if (c.priority === 0 || state.wide) list.push({ name: c.name, get: (r) => r.cells[i], about: c.description }); });
    else list.push({ name: 'Name', get: (r) => r.metadata?.name });
    const name = list.findIndex((c) => c.name.toLowerCase() === 'name');
    if (kind.namespaced && !ns) list.splice(name + 1, 0, { name: 'Namespace', get: (r) => meta(r).namespace });
    const ageColumn = list.find((c) => c.name === 'Age');
    if (ageColumn) Object.assign(ageColumn, { get: (r) => age(meta(r).created), by: (r) => -(Date.parse(meta(r).created) || 0), isAge: true });
    const status = list.find((c) => c.name === 'Status');
    const ready = list.find((c) => c.name === 'Ready');
    const cell = status?.get;
    if (kind.kind === 'Pod' && status) {
      status.get = (r) => (cell(r) === 'Completed' && hasFailed(r) ? 'Failed' : cell(r));
      status.state = (r) => (hasFailed(r) ? 'bad' : ofPodStatus(cell(r), cell(r) === 'Running' ? ready?.get(r) : ''));
    } else if (kind.kind === 'Node' && status) {
      status.get = (r) => { const now = nodeHealth(r); return now?.state === 'bad' && String(cell(r)).startsWith('Ready') ? cell(r) + ', ' + now.text : cell(r); };
      status.state = (r) => nodeHealth(r)?.state || (!String(cell(r)).startsWith('Ready') ? 'bad' : String(cell(r)).includes('Disabled') ? 'warn' : 'ok');
    } else if (status) status.state = (r) => ({ Active: 'ok', Bound: 'ok', Available: 'ok', Complete: 'ok', Running: 'progress', Terminating: 'progress', Pending: 'progress', Failed: 'bad', Lost: 'bad' })[status.get(r)] || '';
    else if (ready && /^\d+\/\d+$/.test(String(rows.shown[0] ? ready.get(rows.shown[0].row) : ''))) ready.state = (r) => { const [a, b] = String(ready.get(r)).split('/'); return a === b ? 'ok' : 'progress'; };
    const type = list.find((c) => c.name === 'Type');
    if (kind.resource === 'events' && type) type.state = (r) => (type.get(r) === 'Warning' ? 'warn' : 'ok');
    const sample = rows.shown.slice(0, 200).map((e) => e.row);
    const width = (c) => Math.min(c.name === 'Name' ? 60 : 40, Math.max(c.name.length + 3, ...sample.map((r) => String(c.get(r) ?? '').length + (c.state ? 3 : 0)))) + 2;
    columns = list;
    const template = list.map((c) => { const w = width(c); return `minmax(${Math.min(w, 14)}ch, ${w}fr)`; }).join(' ');
    grid.style.setProperty('--columns', template);
    fill(headRow, list.map((c) => h('div', { role: 'columnheader', class: 'grid-cell', 'aria-sort': sortOf(c) },
      h('button', { type: 'button', tabindex: '0', class: 'sort', title: c.about || '', onclick: () => {
        state.sort = state.sort === c.name ? '-' + c.name : c.name;
        setParams({ sort: state.sort });
        columnsKey = '';
        schedule({ sort: true });
      } }, c.name, state.sort.replace(/^-/, '') === c.name && h('span', { class: 'sort-mark', 'aria-hidden': 'true' }, state.sort.startsWith('-') ? '▾' : '▴')))));
    grid.setAttribute('aria-colcount', String(list.length));
    pool = [];
    fill(block);
  };
  const sortOf = (c) => (state.sort === c.name ? 'ascending' : state.sort === '-' + c.name ? 'descending' : 'none');

  const sortRows = () => {
    const by = columns.find((c) => c.name === state.sort.replace(/^-/, ''));
    rows.sortBy(!by ? (r, key) => natural(key) : by.by || ((r) => natural(by.get(r))), state.sort.startsWith('-'));
  };

  // paint brings the document up to date, once in a frame.
  const paint = () => {
    todo.frame = 0;
    if (signal.aborted) return;
    if (todo.search) { rows.search(words()); setParams({ q: state.q }); }
    if (todo.all) rows.reset(live.items);
    else if (todo.keys.size) rows.apply(todo.keys, live.items);
    const key = live.table + live.columns.map((c) => c.name).join() + (rows.shown.length > 0);
    if (key !== columnsKey) { columnsKey = key; chooseColumns(); todo.sort = true; }
    if (todo.sort) sortRows();
    Object.assign(todo, { all: false, keys: new Set(), sort: false, search: false });
    drawHead();
    if (activeKey && rows.shown[active]?.key !== activeKey) active = rows.shown.findIndex((e) => e.key === activeKey);
    draw();
  };

  let headKey = '';
  const drawHead = () => {
    liveMark(mark, live);
    const n = rows.shown.length;
    const all = live.items.size;
    const searched = state.q.trim() !== '';
    setText(count, searched ? `${n} of ${all}` : live.state === 'loading' ? `${all}…` : String(all));
    const now = [n, searched, live.state].join();
    if (now === headKey) return;
    headKey = now;
    grid.setAttribute('aria-rowcount', String(n + 1));
    spacer.style.height = n * ROW + 'px';
    if (live.state === 'refused') fill(note, empty(live.error.code === 403 ? 'You may not list these objects.' : 'They could not be listed.', live.error.message));
    else if (!n && live.state !== 'loading') fill(note, empty(searched ? 'Nothing matches.' : 'There are none' + (ns ? ' in the namespace ' + ns : '') + '.'));
    else fill(note);
    grid.classList.toggle('hidden', !n);
  };

  let made = 0;
  const makeRow = () => {
    const cells = columns.map((c) => {
      const inner = c.name === 'Name' ? h('a', { class: 'cell-text', href: '#', tabindex: '-1' }) : h('span', { class: 'cell-text' });
      return { el: h('div', { role: 'gridcell', class: 'grid-cell' }, inner), inner, state: '', text: '' };
    });
    const el = h('div', { class: 'grid-row', role: 'row', id: 'row-' + made++, 'aria-selected': 'false' }, cells.map((c) => c.el));
    const row = { el, cells, index: -1, entry: null, version: -1, active: false };
    el.addEventListener('click', (e) => { if (!e.target.closest('a')) { setActive(row.index); } });
    el.addEventListener('dblclick', () => open(row.index));
    return row;
  };

  const fillCell = (c, cell, r) => {
    const value = c.get(r);
    const text = value === null || value === undefined ? '' : typeof value === 'object' ? JSON.stringify(value) : String(value);
    if (text !== cell.text) {
      cell.text = text;
      setText(cell.inner, text);
      setHint(cell.inner, text.length > 24 ? text : '');
    }
    if (cell.inner.tagName === 'A') {
      const href = objectLink(kind, meta(r).namespace, meta(r).name);
      if (cell.inner.getAttribute('href') !== href) cell.inner.setAttribute('href', href);
    }
    const s = c.state ? c.state(r) : '';
    if (s === cell.state) return;
    cell.state = s;
    cell.el.className = 'grid-cell' + (s ? ' has-state is-' + s : '');
    cell.el.querySelector('svg')?.remove();
    if (s) cell.el.prepend(icon(s));
  };

  // fillRow writes what has changed of a row; the ages grow anyway.
  const fillRow = (row, index) => {
    const e = rows.shown[index];
    if (row.index !== index) { row.index = index; row.el.setAttribute('aria-rowindex', String(index + 2)); }
    if (row.active !== (index === active)) {
      row.active = index === active;
      row.el.classList.toggle('active', row.active);
      row.el.setAttribute('aria-selected', String(row.active));
    }
    const same = row.entry === e && row.version === e.version;
    row.entry = e;
    row.version = e.version;
    columns.forEach((c, i) => { if (!same || c.isAge) fillCell(c, row.cells[i], e.row); });
  };

  // draw puts the rows in sight into the document. A row that stays in sight keeps its element, so that scrolling by a row writes one.
  const draw = () => {
    const all = rows.shown;
    const seen = Math.ceil(body.clientHeight / ROW) || 30;
    const from = Math.max(0, Math.min(Math.floor(body.scrollTop / ROW) - SPARE, all.length - seen - 2 * SPARE));
    const wanted = all.slice(from, from + seen + 2 * SPARE);
    const having = new Map(pool.map((r) => [r.entry, r]));
    const stay = new Set(wanted.filter((e) => having.has(e)));
    const free = pool.filter((r) => !stay.has(r.entry));
    for (const r of free) r.el.remove();
    pool = wanted.map((e) => (stay.has(e) ? having.get(e) : free.pop() || makeRow()));
    let at = block.firstChild;
    for (const r of pool) {
      if (at === r.el) at = at.nextSibling;
      else block.insertBefore(r.el, at);
    }
    const move = `translateY(${from * ROW}px)`;
    if (block.style.transform !== move) block.style.transform = move;
    pool.forEach((r, i) => fillRow(r, from + i));
    const chosen = pool[active - from];
    if (active >= 0 && chosen) grid.setAttribute('aria-activedescendant', chosen.el.id);
    else grid.removeAttribute('aria-activedescendant');
  };

  const setActive = (i) => {
    const all = rows.shown;
    if (!all.length) return;
    active = Math.max(0, Math.min(all.length - 1, i));
    activeKey = all[active].key;
    const top = active * ROW;
    const { scrollTop, clientHeight } = body;
    if (top < scrollTop) body.scrollTop = top;
    else if (top + ROW > scrollTop + clientHeight) body.scrollTop = top + ROW - clientHeight;
    draw();
  };
  const rowMeta = (i) => meta(rows.shown[i].row);
  const open = (i) => { if (rows.shown[i]) location.hash = objectLink(kind, rowMeta(i).namespace, rowMeta(i).name); };

  body.addEventListener('scroll', () => schedule(), { passive: true });
  grid.addEventListener('focus', () => { if (active < 0 && rows.shown.length) setActive(Math.floor(body.scrollTop / ROW)); });
  grid.addEventListener('keydown', (e) => {
    if (e.target.closest('button')) return;
    const page = Math.max(1, Math.floor(body.clientHeight / ROW) - 1);
    const to = { ArrowDown: active + 1, ArrowUp: active - 1, PageDown: active + page, PageUp: active - page, Home: 0, End: rows.shown.length - 1 }[e.key];
    if (to !== undefined) { e.preventDefault(); setActive(to); announce(rows.shown[active] ? rowMeta(active).name : ''); }
    if (e.key === 'Enter') { e.preventDefault(); open(active); }
  });
  const resize = new ResizeObserver(() => schedule());
  resize.observe(body);
  const timer = setInterval(() => schedule(), 1000); // ages grow
  signal.addEventListener('abort', () => { clearInterval(timer); resize.disconnect(); });

  return {
    update(to) {
      state.q = to.params.get('q') || '';
      state.sort = to.params.get('sort') || '';
      if (search.value !== state.q) search.value = state.q;
      columnsKey = '';
      schedule({ search: true, sort: true });
    },
  };
}
