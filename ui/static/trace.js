// The trace of an object as a waterfall. Colours and the order of hops are fixed; waiting is hatched and work is solid; the chain of
// spans that the whole had to wait for is marked; spans that have not ended grow with the clock.

import { h, fill, icon, badge, nanos, when, empty, announce, setText, setHint, reducedMotion } from './dom.js';
import { getJSON, findKind, TRACES, traceName } from './api.js';
import { hops, hopTag, hopGroup, groupTitle } from './hops.js';
import { objectLink, setParams, linkTo } from './app.js';

const ROW = 28;
const SPARE = 10;
const MAX = 5000; // spans that are shown
const FEW = 40; // up to so many spans are expanded at first
const MAX_FOLDS = 100; // spans in the address that are expanded or collapsed by themselves

export function show(box, ctx) {
  fill(box, h('p', { class: 'hint' }, 'Reading the trace…'));
  const path = `${TRACES}/namespaces/${encodeURIComponent(ctx.ns || 'default')}/traces/${encodeURIComponent(traceName(ctx.kind, ctx.name))}`;
  let view = null;
  let timer = 0;
  const load = async () => {
    let pause = 3000;
    try {
      const t = await getJSON(path, { signal: ctx.signal });
      if (!view) {
        view = new Waterfall(box, ctx.params, ctx.signal, () => getJSON(path.replace('/traces/', '/wiretraces/'), { signal: ctx.signal }));
        box.append(h('p', { class: 'row' }, h('a', { href: linkTo('learn', { of: `${ctx.ns || 'default'}/${traceName(ctx.kind, ctx.name)}` }) }, 'Play this trace hop by hop'),
          h('span', { class: 'hint' }, 'In the terminal: ', h('code', null, `proa trace ${ctx.kind.resource}/${ctx.name}${ctx.ns ? ' -n ' + ctx.ns : ''}`))));
      }
      view.set(t);
      if ((t.spans || []).some((s) => s.open)) pause = 1000;
    } catch (e) {
      if (ctx.signal.aborted) return;
      if (!view) {
        if (e.code === 404) fill(box, empty(/not find the requested resource/.test(e.message) ? 'This server has no traces.' : 'There is no trace of this object.', e.message, 'Traces of recent writes are kept in the API server of proa.'));
        else fill(box, empty(e.code === 403 ? 'You may not see traces here.' : 'The trace could not be read.', e.message));
      }
      pause = 5000;
    }
    if (!ctx.signal.aborted) timer = setTimeout(load, document.hidden ? 10000 : pause);
  };
  load();
  ctx.signal.addEventListener('abort', () => clearTimeout(timer));
  return { navigate: (params) => view?.navigate(params) };
}

// niceStep returns a step of 1, 2 or 5 times a power of ten that divides a range into about n parts.
function niceStep(range, n) {
  const raw = range / n;
  const power = 10 ** Math.floor(Math.log10(raw));
  return [1, 2, 5, 10].map((m) => m * power).find((s) => s >= raw);
}

// Waterfall draws a trace.
export class Waterfall {
  // Bodies reads the same trace with the bodies of its requests, which needs a right of its own.
  constructor(box, params, signal, bodies) {
    this.signal = signal;
    this.bodies = bodies;
    this.trace = null;
    this.rows = []; // spans, and titles of groups
    this.pool = [];
    this.matches = [];
    this.readParams(params);
    this.selected = params.get('sel') || '';
    this.summary = h('div', { class: 'trace-summary' });
    this.legend = h('div', { class: 'trace-legend', role: 'group', 'aria-label': 'Hops; press one to hide its spans' });
    this.critical = h('div', { class: 'critical' });
    this.map = h('canvas', { class: 'trace-map', 'aria-hidden': 'true' });
    this.mapWindow = h('div', { class: 'trace-map-window' });
    this.axis = h('div', { class: 'trace-axis', 'aria-hidden': 'true' });
    this.marks = h('div', { class: 'trace-marks', 'aria-hidden': 'true' });
    this.block = h('div', { class: 'trace-block', role: 'presentation' });
    this.spacer = h('div', { class: 'trace-spacer', role: 'presentation' }, this.block);
    this.body = h('div', { class: 'trace-body', role: 'tree', tabindex: '0', 'aria-label': 'Spans. f and b go to the next and previous one, o and p expand and collapse by a level, a and d move in time, plus and minus zoom.' }, this.spacer);
    this.detail = h('aside', { class: 'trace-detail', 'aria-label': 'The chosen span', 'aria-live': 'polite' });
    this.note = h('p', { class: 'hint' });
    this.find = h('input', { type: 'search', class: 'input search', placeholder: 'Find in this trace', 'aria-label': 'Find in this trace: names, objects, actors and details', value: this.wanted, spellcheck: 'false', 'aria-keyshortcuts': 'Control+B',
      oninput: () => { this.wanted = this.find.value; setParams({ find: this.wanted }); this.layout(); },
      onkeydown: (e) => { if (e.key === 'Enter') { e.preventDefault(); this.stepMatch(e.shiftKey ? -1 : 1); } else if (e.key === 'Escape') this.body.focus(); } });
    this.found = h('span', { class: 'hint', role: 'status' });
    this.orders = ['hop', 'time'].map((order) => h('button', { type: 'button', class: 'button small', onclick: () => { this.order = order; setParams({ order: order === 'time' ? order : '' }); this.layout(); } }, 'By ' + order));
    const tools = h('div', { class: 'toolbar trace-tools' }, h('div', { class: 'row', role: 'group', 'aria-label': 'Order of the spans' }, this.orders), this.find, this.found);
    const map = h('div', { class: 'trace-map-box' }, this.map, this.mapWindow);
    this.chart = h('div', { class: 'trace-chart' }, h('div', { class: 'trace-head' }, h('div', { class: 'trace-left' }, 'Hop and span'), h('div', { class: 'trace-right' }, this.axis)), this.body, this.marks);
    fill(box, this.summary, this.critical, this.legend, tools, map, h('div', { class: 'trace-columns' }, this.chart, this.detail), this.note);
    this.listen(map);
  }

  // readParams takes from the address what it says about the view of the trace.
  readParams(params) {
    this.view = readView(params);
    this.hide = new Set((params.get('hide') || '').split(',').filter(Boolean).map(Number));
    this.order = params.get('order') === 'time' ? 'time' : 'hop';
    this.wanted = params.get('find') || '';
    const [fold, ...others] = (params.get('fold') || '').split(',');
    this.fold = fold === 'all' || fold === 'none' ? fold : this.spans?.length > FEW ? 'all' : this.spans ? 'none' : '';
    this.others = new Set(others.slice(0, MAX_FOLDS));
  }

  // --- data ---

  set(t) {
    const first = !this.trace;
    const wasOpen = this.byId?.get(this.selected)?.open;
    this.trace = t;
    this.read = Date.now();
    this.start = Date.parse(t.start);
    this.fraction = nanosOf(t.start);
    const all = (t.spans || []).slice(0, MAX);
    this.cut = (t.spans || []).length - all.length;
    this.spans = all.map((s) => ({ ...s, at: (Date.parse(s.start) - this.start) * 1e6 + (nanosOf(s.start) - this.fraction), took: s.took || 0, wait: Math.min(s.wait || 0, s.took || 0), hop: s.hop || 0 }));
    this.byId = new Map(this.spans.map((s) => [s.id, s]));
    this.children = new Map();
    for (const s of this.spans) {
      const p = s.parent && this.byId.has(s.parent) ? s.parent : '';
      if (!this.children.has(p)) this.children.set(p, []);
      this.children.get(p).push(s);
      s.level = p ? (this.byId.get(p).level || 0) + 1 : 0;
    }
    if (first && !this.fold) this.fold = this.spans.length > FEW ? 'all' : 'none'; // requests are read as wholes first; their bars show the hops
    this.layout();
    if (first) {
      const open = this.byId.get(t.stuckSpan) || this.spans.find((s) => s.open);
      if (!this.selected && open) this.select(open.id, false);
      else if (this.selected) this.select(this.selected, true);
    } else if (wasOpen && this.byId.get(this.selected)?.open !== true) { // the chosen span has ended
      this.select(this.selected, false);
    }
  }

  // total is how long the trace is by now, in nanoseconds.
  total() {
    const ends = this.spans.map((s) => this.end(s));
    return Math.max(1000, ...ends.slice(0, MAX), ...(this.trace.milestones || []).map((m) => m.at));
  }

  // tookNow is how long a span has taken by now.
  tookNow(s) { return s.open ? s.took + (Date.now() - this.read) * 1e6 : s.took; }
  end(s) { return s.at + this.tookNow(s); }

  layout() {
    const all = this.inOrder();
    const isShut = new Map(); // whether a span, or one above it, is collapsed
    this.rows = all.filter((s) => {
      if (s.title) return true;
      const isBelowShut = isShut.get(s.parent) || false;
      isShut.set(s.id, isBelowShut || this.isClosed(s));
      return !isBelowShut && (!this.hide.has(s.hop) || !s.hop);
    });
    this.rows = this.rows.filter((s, i) => !s.title || this.rows[i + 1] && !this.rows[i + 1].title); // no titles of empty groups
    this.matches = this.wanted.trim() ? all.filter((s) => !s.title && this.isWanted(s)) : [];
    this.chart.classList.toggle('finding', this.wanted.trim() !== '');
    setText(this.found, this.wanted.trim() ? `${this.matches.length} of ${this.spans.length} spans` + (this.matches.length ? '; Enter goes to the next' : '') : '');
    for (const [i, b] of this.orders.entries()) b.setAttribute('aria-pressed', String(this.order === ['hop', 'time'][i]));
    this.spacer.style.height = this.rows.length * ROW + 'px';
    this.drawSummary();
    this.drawLegend();
    this.draw();
    const open = this.spans.some((s) => s.open);
    clearInterval(this.clock);
    if (open) this.clock = setInterval(() => { if (!document.hidden) this.draw(); }, reducedMotion() ? 1000 : 100);
  }

  // inOrder returns all spans, each before its children: by the time at which they began, or in groups by their hops, with titles.
  inOrder() {
    const out = [];
    const visit = (s) => { out.push(s); for (const c of this.children.get(s.id) || []) visit(c); };
    const top = this.children.get('') || [];
    if (this.order === 'time') { top.forEach(visit); return out; }
    const firstWrite = top.find((s) => !s.hop);
    const groups = new Map();
    for (const s of top) {
      const n = hopGroup(s, s === firstWrite);
      if (!groups.has(n)) groups.set(n, []);
      groups.get(n).push(s);
    }
    for (const n of [...groups.keys()].sort((a, b) => a - b)) {
      out.push({ title: groupTitle(n), group: n, level: 0 });
      groups.get(n).forEach(visit);
    }
    return out;
  }

  // isClosed tells whether the children of a span are collapsed. What is remembered are the spans that differ from all others.
  isClosed(s) { return this.children.has(s.id) && (this.fold === 'all') !== this.others.has(s.id); }

  // setClosed expands or collapses some spans.
  setClosed(list, shut) {
    for (const s of list) if (this.children.has(s.id) && this.isClosed(s) !== shut) this.others.has(s.id) ? this.others.delete(s.id) : this.others.add(s.id);
    this.keepFold();
  }

  // foldAll expands or collapses all spans.
  foldAll(shut) {
    this.fold = shut ? 'all' : 'none';
    this.others.clear();
    this.keepFold();
  }

  // foldLevel collapses the deepest level that is expanded, or expands the first that is collapsed.
  foldLevel(shut) {
    const shown = this.rows.filter((s) => this.children.has(s.id) && this.isClosed(s) !== shut);
    const level = (shut ? Math.max : Math.min)(...shown.map((s) => s.level));
    this.setClosed(shown.filter((s) => s.level === level), shut);
  }

  keepFold() {
    setParams({ fold: [this.fold, ...[...this.others].slice(0, MAX_FOLDS)].join(',') });
    this.layout();
  }

  isWanted(s) {
    if (s.hidden) return false;
    const o = s.object || {};
    const text = [s.name, s.hopName, s.actor, s.detail, s.error, s.process, o.resource && `${o.resource}/${o.name}`].filter(Boolean).join(' ').toLowerCase();
    return this.wanted.toLowerCase().split(/\s+/).every((w) => text.includes(w));
  }

  // stepMatch goes to the next span that was searched for, or to the previous one.
  stepMatch(by) {
    if (!this.matches.length) return;
    const i = this.matches.findIndex((s) => s.id === this.selected);
    const s = this.matches.at(i < 0 && by > 0 ? 0 : (i + by) % this.matches.length);
    this.select(s.id, true);
    announce(`${s.name}, ${nanos(this.tookNow(s))}`);
  }

  // --- drawing ---

  drawSummary() {
    const t = this.trace;
    const total = this.total();
    const open = this.spans.filter((s) => s.open).length;
    fill(this.summary,
      h('p', { class: 'trace-sentence' }, t.summary || `${nanos(total)} in ${this.spans.length} spans`),
      unseenView(t),
      t.stuck && h('p', { class: 'row' }, badge('bad', 'Stuck'), this.byId.has(t.stuckSpan) ? h('button', { type: 'button', class: 'link', onclick: () => this.select(t.stuckSpan, true) }, t.stuck) : t.stuck),
      h('p', { class: 'hint' }, [t.command && ['by ', h('code', null, t.command)], t.user && [t.command ? ' as ' : 'by ', t.user], ' at ', when(t.start), open > 0 && ` · ${open} still open`].filter(Boolean)));
    const shares = t.critical || [];
    const sum = shares.reduce((a, s) => a + s.took, 0) || 1;
    const bar = h('div', { class: 'share-bar', 'aria-hidden': 'true' }, shares.map((s) => {
      const part = h('span', { class: ['share', 'hop-' + (this.byId.get(s.span)?.hop || 0), s.wait && 'is-wait'], title: `${s.name} ${nanos(s.took)}` });
      part.style.flexGrow = String(Math.max(s.took / sum, 0.002));
      return part;
    }));
    const top = [...shares].sort((a, b) => b.took - a.took).slice(0, 6);
    fill(this.critical, shares.length > 0 && [h('h3', { class: 'inline' }, icon('critical'), 'Critical path'), bar,
      h('ul', { class: 'legend' }, top.map((s) => h('li', null, h('button', { type: 'button', class: 'link', onclick: () => this.select(s.span, true) },
        h('span', { class: ['swatch', 'hop-' + (this.byId.get(s.span)?.hop || 0), s.wait && 'is-wait'] }), `${s.name} ${nanos(s.took)}${s.wait ? ' waiting' : ''}`))))]);
    const notes = [];
    if (t.hidden) notes.push(`${t.hidden} spans are about objects that you may not see; only their hop and times are shown.`);
    if (t.later) notes.push(`${t.later} later records are about what happened after the object was ready.`);
    if (t.dropped) notes.push(`The server has left ${t.dropped} spans out.`);
    if (this.cut > 0) notes.push(`The page shows the first ${MAX} spans; ${this.cut} are not shown.`);
    const hiddenHere = this.spans.filter((s) => s.hop && this.hide.has(s.hop)).length;
    if (hiddenHere) notes.push(`${hiddenHere} spans of hops that you have switched off are not shown.`);
    setText(this.note, notes.join(' '));
  }

  drawLegend() {
    const present = new Set(this.spans.map((s) => s.hop));
    fill(this.legend, hops.map((hop, n) => hop && h('button', {
      type: 'button', class: ['hop-toggle', 'hop-' + n], disabled: !present.has(n), 'aria-pressed': String(!this.hide.has(n)), title: hop.title,
      onclick: () => { this.hide.has(n) ? this.hide.delete(n) : this.hide.add(n); setParams({ hide: [...this.hide].join(',') }); this.layout(); this.legend.querySelector('.hop-' + n)?.focus(); },
    }, h('span', { class: 'hop-number' }, n), hop.name)), h('span', { class: 'legend-key' }, h('span', { class: 'swatch key is-wait' }), 'waiting', h('span', { class: 'swatch key' }), 'working'));
  }

  // window returns the part of the trace that is shown, in nanoseconds.
  window() {
    const total = this.total() * 1.04;
    return [this.view[0] * total, this.view[1] * total];
  }

  draw() {
    if (!this.trace) return;
    const [from, to] = this.window();
    const seen = Math.ceil(this.body.clientHeight / ROW) || 30;
    const first = Math.max(0, Math.min(Math.floor(this.body.scrollTop / ROW) - SPARE, this.rows.length - seen - 2 * SPARE));
    const n = Math.min(this.rows.length - first, seen + 2 * SPARE);
    while (this.pool.length < n) { const r = this.makeRow(); this.pool.push(r); this.block.appendChild(r.el); }
    while (this.pool.length > n) this.pool.pop().el.remove();
    this.block.style.transform = `translateY(${first * ROW}px)`;
    for (let i = 0; i < n; i++) this.fillRow(this.pool[i], first + i, from, to);
    const at = this.selected ? this.rows.findIndex((s) => s.id === this.selected) : -1;
    if (at >= first && at < first + n) this.body.setAttribute('aria-activedescendant', 'span-' + at);
    else this.body.removeAttribute('aria-activedescendant');
    this.drawAxis(from, to);
    this.drawMap();
  }

  makeRow() {
    const r = {
      twist: h('button', { type: 'button', class: 'twist', tabindex: '-1', 'aria-hidden': 'true' }), tag: h('span', { class: 'hop-number' }), name: h('span', { class: 'span-name' }), more: h('span', { class: 'muted span-more' }),
      mark: h('span', { class: 'span-marks' }), wait: h('div', { class: 'bar-wait' }), work: h('div', { class: 'bar-work' }), time: h('span', { class: 'bar-time' }),
    };
    r.bar = h('div', { class: 'bar' }, r.wait, r.work);
    r.left = h('div', { class: 'trace-left' }, r.twist, r.tag, r.name, r.more, r.mark);
    r.right = h('div', { class: 'trace-right' }, r.bar, r.time);
    r.el = h('div', { class: 'trace-row', role: 'treeitem' }, r.left, r.right);
    r.el.addEventListener('click', (e) => { if (!r.span.title && !e.target.closest('.twist')) this.select(r.span.id, false); });
    r.twist.addEventListener('click', () => this.toggle(r.span));
    return r;
  }

  // fillTitle makes a row the title of a group. It is none of the spans that can be chosen.
  fillTitle(r, s) {
    if (r.span?.title === s.title) return;
    r.span = s;
    r.el.className = 'trace-row trace-group hop-' + s.group;
    r.el.setAttribute('role', 'presentation');
    for (const name of ['id', 'aria-level', 'aria-selected', 'aria-expanded']) r.el.removeAttribute(name);
    r.left.style.setProperty('--level', '0');
    r.twist.style.visibility = 'hidden';
    setText(r.tag, '');
    r.tag.title = '';
    setText(r.name, s.title);
    setText(r.more, '');
    fill(r.mark);
    r.left.title = '';
    r.right.hidden = true;
  }

  fillRow(r, index, from, to) {
    const s = this.rows[index];
    if (s.title) { this.fillTitle(r, s); return; }
    const shut = this.isClosed(s);
    const found = this.wanted.trim() !== '' && this.isWanted(s);
    if (r.span !== s || r.chosen !== (s.id === this.selected) || r.shut !== shut || r.found !== found || r.index !== index) {
      Object.assign(r, { span: s, chosen: s.id === this.selected, shut, found, index });
      r.el.setAttribute('role', 'treeitem');
      r.right.hidden = false;
      const kids = this.children.get(s.id)?.length || 0;
      r.el.className = ['trace-row', 'hop-' + s.hop, r.chosen && 'selected', s.critical && 'critical-row', s.open && 'open-row', s.error && 'error-row', found && 'found'].filter(Boolean).join(' ');
      r.el.id = 'span-' + index;
      r.el.setAttribute('aria-level', String(s.level + 1));
      r.el.setAttribute('aria-selected', String(r.chosen));
      if (kids) r.el.setAttribute('aria-expanded', String(!r.shut));
      else r.el.removeAttribute('aria-expanded');
      r.left.style.setProperty('--level', String(Math.min(s.level, 6)));
      fill(r.twist, kids ? icon(r.shut ? 'right' : 'down') : null);
      r.twist.style.visibility = kids ? 'visible' : 'hidden';
      setText(r.tag, s.hop || '•');
      r.tag.title = hops[s.hop]?.title || 'a whole request';
      setText(r.name, s.hidden ? 'hidden (no access)' : s.name);
      setText(r.more, s.hidden ? '' : moreOf(s));
      // The bar of a request shows its hops.
      const kinds = (this.children.get(s.id) || []).filter((c) => c.hop).slice(0, 16);
      r.parts = kinds.some((c) => c.hop !== s.hop) ? kinds : [];
      r.segments = r.parts.map((c) => h('div', { class: ['bar-part hop-' + c.hop, c.wait > c.took / 2 && 'is-wait'] }));
      r.bar.replaceChildren(r.wait, r.work, ...r.segments);
      setHint(r.left, s.hidden ? 'You may not see the object of this span' : [s.name, moreOf(s)].filter(Boolean).join(' · '));
      fill(r.mark, s.hidden && icon('hidden'), s.error && h('span', { class: 'is-bad' }, icon('bad'), h('span', { class: 'sr' }, 'failed')),
        s.critical && h('span', { class: 'crit', title: 'on the critical path' }, icon('critical'), h('span', { class: 'sr' }, 'critical path')));
    }
    const range = to - from;
    const took = this.tookNow(s);
    const left = (s.at - from) / range * 100;
    const width = took / range * 100;
    const a = Math.max(left, -1);
    const b = Math.min(left + width, 101);
    r.bar.style.left = a + '%';
    r.bar.style.width = Math.max(0, b - a) + '%';
    r.bar.style.display = b < 0 || a > 100 ? 'none' : '';
    // The parts keep their places when the bar is cut at an edge.
    const inside = Math.max(b - a, 1e-9);
    const wait = s.open && !s.wait && s.waiting ? took : s.wait;
    const waitEnd = Math.max(a, Math.min(b, left + wait / range * 100));
    r.wait.style.width = (waitEnd - a) / inside * 100 + '%';
    r.work.style.width = (b - waitEnd) / inside * 100 + '%';
    r.parts.forEach((c, i) => {
      const x = Math.max(a, Math.min(b, (c.at - from) / range * 100));
      const y = Math.max(a, Math.min(b, (c.at + this.tookNow(c) - from) / range * 100));
      r.segments[i].style.left = (x - a) / inside * 100 + '%';
      r.segments[i].style.width = (y - x) / inside * 100 + '%';
    });
    setText(r.time, nanos(took) + (s.wait > took * 0.01 && s.wait > 1e5 ? ` (${nanos(s.wait)} waiting)` : '') + (s.open ? ' …' : ''));
    // The time stands behind the bar, before it where there is no room, or on it where there is none either.
    const place = b <= 72 ? '' : a >= 30 ? 'before' : 'inside';
    r.time.className = 'bar-time ' + place;
    r.time.style.left = place === '' ? Math.max(b, 0) + '%' : '';
    r.time.style.right = place === 'before' ? 100 - a + '%' : place === 'inside' ? Math.max(0, 100 - b) + '%' : '';
    r.time.style.display = b < 0 || a > 100 ? 'none' : '';
  }

  drawAxis(from, to) {
    const step = niceStep(to - from, 6);
    const ticks = [];
    for (let t = Math.ceil(from / step) * step; t <= to; t += step) ticks.push(t);
    const key = [from, to, this.axis.clientWidth, (this.trace.milestones || []).length].join();
    if (key === this.axisKey) return;
    this.axisKey = key;
    const place = (el, t) => { el.style.left = (t - from) / (to - from) * 100 + '%'; return el; };
    const stones = (this.trace.milestones || []).filter((m) => m.at >= from && m.at <= to).sort((a, b) => a.at - b.at);
    const lastEnd = []; // of each lane of labels: as many as keep the labels apart
    const wide = this.axis.clientWidth || 600;
    const labels = stones.map((m) => {
      const x = (m.at - from) / (to - from) * wide;
      const len = m.name.length * 7 + 14;
      const flip = x + len > wide; // then it stands to the left of its line
      let lane = lastEnd.findIndex((e) => e <= (flip ? x - len : x));
      if (lane < 0) lane = lastEnd.length;
      lastEnd[lane] = flip ? x : x + len;
      const el = place(h('span', { class: ['stone-label', flip && 'flip'], title: m.name + ' after ' + nanos(m.at) }, m.name), m.at);
      el.style.setProperty('--lane', String(lane));
      return el;
    });
    this.chart.style.setProperty('--lanes', String(Math.max(3, lastEnd.length)));
    fill(this.axis, ticks.map((t) => place(h('span', { class: 'tick' }, t === 0 ? '0' : nanos(t)), t)), labels);
    fill(this.marks, ticks.map((t) => place(h('span', { class: 'grid-line' }), t)), stones.map((m) => place(h('span', { class: 'stone-line' }), m.at)));
  }

  drawMap() {
    const c = this.map;
    const w = c.clientWidth;
    const hgt = c.clientHeight;
    if (!w) return;
    const ratio = Math.min(2, devicePixelRatio || 1);
    if (c.width !== Math.round(w * ratio)) { c.width = Math.round(w * ratio); c.height = Math.round(hgt * ratio); }
    const g = c.getContext('2d');
    g.setTransform(ratio, 0, 0, ratio, 0, 0);
    g.clearRect(0, 0, w, hgt);
    const total = this.total() * 1.04;
    const style = getComputedStyle(document.documentElement);
    const list = this.spans.filter((s) => s.level === 0 || s.hop >= 8);
    const each = Math.min(5, Math.max(2.5, (hgt - 4) / Math.max(1, list.length)));
    list.forEach((s, i) => {
      g.fillStyle = style.getPropertyValue('--hop-' + s.hop) || '#888';
      g.globalAlpha = s.critical ? 1 : 0.6;
      g.fillRect(s.at / total * w, 2 + (i * each) % (hgt - 5), Math.max(1.5, this.tookNow(s) / total * w), Math.max(1, each - 0.5));
    });
    g.globalAlpha = 1;
    this.mapWindow.style.left = this.view[0] * 100 + '%';
    this.mapWindow.style.width = (this.view[1] - this.view[0]) * 100 + '%';
    this.mapWindow.classList.toggle('whole', this.view[0] <= 0 && this.view[1] >= 1);
  }

  // --- choosing and moving ---

  select(id, scroll) {
    const s = this.byId.get(id);
    if (!s) return;
    const above = [];
    for (let p = this.byId.get(s.parent); p; p = this.byId.get(p.parent)) above.push(p);
    this.selected = id;
    setParams({ sel: id });
    if (above.some((p) => this.isClosed(p))) this.setClosed(above, false);
    else this.layout();
    const i = this.rows.indexOf(s);
    const top = i * ROW;
    if (scroll || top < this.body.scrollTop || top + ROW > this.body.scrollTop + this.body.clientHeight) {
      if (top < this.body.scrollTop || top + ROW > this.body.scrollTop + this.body.clientHeight) this.body.scrollTop = Math.max(0, top - this.body.clientHeight / 2);
      this.draw();
    }
    this.drawDetail(s);
  }

  drawDetail(s) {
    const link = (id, text) => { const to = this.byId.get(id); return to ? h('button', { type: 'button', class: 'link', onclick: () => { this.select(id, true); this.body.focus(); } }, text || to.name) : null; };
    const caused = this.spans.filter((x) => (x.links || []).includes(s.id));
    const o = s.object || {};
    const objectCell = h('span', null, o.name ? `${o.resource} ${o.namespace ? o.namespace + '/' : ''}${o.name}` : '');
    if (o.name && !s.hidden) {
      findKind(o.group || '', o.resource).then((k) => { if (k) fill(objectCell, h('a', { href: objectLink(k, o.namespace, o.name, { tab: 'trace' }) }, `${k.kind} ${o.name}`)); }).catch(() => {});
    }
    const rows = [
      ['Hop', hopTag(s.hop, true)], ['Object', o.name && !s.hidden ? objectCell : ''], ['Actor', s.actor], ['Started', 'after ' + nanos(s.at)], ['Took', h('span', { class: 'took' }, nanos(this.tookNow(s)) + (s.open ? ' so far' : ''))],
      ['Waiting', s.wait ? nanos(s.wait) : ''], ['Working', s.wait ? nanos(this.tookNow(s) - s.wait) : ''], ['Revision', s.revision || ''], ['Process', s.process], ['Detail', s.detail], ['Error', s.error && h('span', { class: 'is-bad' }, icon('bad'), ' ', s.error)],
      ['Part of', s.parent && link(s.parent)], ['Caused by', (s.links || []).some((l) => this.byId.has(l)) ? h('ul', { class: 'plain' }, s.links.map((l) => this.byId.has(l) && h('li', null, link(l)))) : ''],
      ['Caused', caused.length ? h('ul', { class: 'plain' }, caused.slice(0, 12).map((x) => h('li', null, link(x.id))), caused.length > 12 && h('li', null, `and ${caused.length - 12} more`)) : ''],
    ];
    fill(this.detail, h('h3', null, s.hidden ? 'hidden (no access)' : s.name), s.critical && h('p', { class: 'crit-note' }, icon('critical'), 'On the critical path: everything after it had to wait for it.'),
      s.hidden && h('p', { class: 'hint' }, 'You have no right to see the object of this span. Its hop and times are shown.'),
      h('dl', { class: 'facts narrow' }, rows.filter(([, v]) => v).map(([k, v]) => [h('dt', null, k), h('dd', null, v)])),
      hops[s.hop] && h('p', { class: 'hint' }, hops[s.hop].text), s.level === 0 && s.hop === 0 && !s.hidden && this.bytes(s));
  }

  // bytes shows the bodies of a request, once they are asked for.
  bytes(s) {
    const out = h('div', { class: 'stack' });
    const wire = s.wire || this.wires?.get(s.id);
    if (wire) return fill(out, wireView(wire));
    if (this.wires) return fill(out, h('p', { class: 'hint' }, 'The server has kept no bodies of this request.'));
    return fill(out, h('button', { type: 'button', class: 'button small', onclick: async () => {
      try {
        const t = await this.bodies();
        this.wires = new Map((t.spans || []).filter((x) => x.wire).map((x) => [x.id, x.wire]));
        out.replaceWith(this.bytes(s));
      } catch (e) {
        fill(out, h('p', { class: 'hint' }, e.code === 403 ? 'You may not read bodies of requests (get wiretraces).' : 'The bodies could not be read: ' + e.message));
      }
    } }, 'Show the bytes'));
  }

  toggle(s, shut) {
    this.setClosed([s], shut ?? !this.isClosed(s));
  }

  setView(from, to) {
    const width = Math.min(1, Math.max(1e-6, to - from));
    from = Math.max(0, Math.min(1 - width, from));
    this.view = [from, from + width];
    setParams({ t: width >= 1 ? '' : `${+from.toPrecision(6)}_${+(from + width).toPrecision(6)}` });
    this.draw();
  }

  zoom(factor, at = 0.5) {
    const [a, b] = this.view;
    const w = (b - a) * factor;
    const mid = a + (b - a) * at;
    this.setView(mid - w * at, mid + w * (1 - at));
  }

  pan(part) {
    const [a, b] = this.view;
    this.setView(a + (b - a) * part, b + (b - a) * part);
  }

  step(by) {
    const list = this.rows.filter((s) => !s.title);
    const i = list.findIndex((s) => s.id === this.selected);
    const s = list[Math.max(0, Math.min(list.length - 1, i < 0 ? 0 : i + by))];
    if (!s) return;
    this.select(s.id, false);
    announce(`${s.hidden ? 'hidden' : s.name}, ${nanos(this.tookNow(s))}`);
  }

  listen(map) {
    const on = (e) => {
      if (e.ctrlKey && e.key === 'b' && !document.querySelector('dialog[open]')) { e.preventDefault(); this.find.focus(); return; }
      if (e.ctrlKey || e.metaKey || e.altKey || /^(INPUT|TEXTAREA|SELECT)$/.test(e.target.tagName) || document.querySelector('dialog[open]')) return;
      const s = this.byId?.get(this.selected);
      const inBody = e.target === this.body;
      const act = {
        f: () => this.step(1), b: () => this.step(-1), w: () => { this.body.scrollTop -= ROW * 4; }, s: () => { this.body.scrollTop += ROW * 4; },
        a: () => this.pan(-0.2), d: () => this.pan(0.2), '+': () => this.zoom(0.7), '=': () => this.zoom(0.7), '-': () => this.zoom(1 / 0.7), 0: () => this.setView(0, 1),
        ']': () => this.foldAll(false), '[': () => this.foldAll(true), o: () => this.foldLevel(false), p: () => this.foldLevel(true),
      }[e.key] || (inBody && e.shiftKey && { ArrowUp: () => this.zoom(0.5), ArrowDown: () => this.zoom(2) }[e.key]) || (inBody && {
        ArrowDown: () => this.step(1), ArrowUp: () => this.step(-1), ArrowRight: () => s && this.toggle(s, false), ArrowLeft: () => s && this.toggle(s, true), Enter: () => s && this.toggle(s),
        Home: () => this.step(-this.rows.length), End: () => this.step(this.rows.length),
      }[e.key]);
      if (!act) return;
      e.preventDefault();
      act();
    };
    document.addEventListener('keydown', on, { signal: this.signal });
    let frame = 0;
    this.body.addEventListener('scroll', () => { if (!frame) frame = requestAnimationFrame(() => { frame = 0; this.draw(); }); }, { passive: true });
    this.body.addEventListener('wheel', (e) => {
      if (!e.ctrlKey) return;
      e.preventDefault();
      const box = this.axis.getBoundingClientRect();
      this.zoom(e.deltaY < 0 ? 0.85 : 1 / 0.85, Math.max(0, Math.min(1, (e.clientX - box.left) / box.width)));
    }, { passive: false });
    let from = null;
    const at = (e) => { const b = this.map.getBoundingClientRect(); return Math.max(0, Math.min(1, (e.clientX - b.left) / b.width)); };
    map.addEventListener('pointerdown', (e) => { from = at(e); map.setPointerCapture(e.pointerId); });
    map.addEventListener('pointermove', (e) => { if (from !== null && Math.abs(at(e) - from) > 0.005) this.setView(Math.min(from, at(e)), Math.max(from, at(e))); });
    map.addEventListener('pointerup', (e) => { if (from !== null && Math.abs(at(e) - from) <= 0.005) this.setView(0, 1); from = null; });
    const redraw = () => { this.axisKey = ''; this.draw(); };
    const resize = new ResizeObserver(redraw);
    resize.observe(this.chart);
    window.addEventListener('proa-theme', redraw, { signal: this.signal });
    this.signal.addEventListener('abort', () => { resize.disconnect(); clearInterval(this.clock); });
  }

  navigate(params) {
    this.readParams(params);
    this.find.value = this.wanted;
    const sel = params.get('sel') || '';
    if (this.trace) { this.layout(); if (sel && sel !== this.selected) this.select(sel, true); }
  }
}

function readView(params) {
  const [a, b] = (params.get('t') || '').split('_').map(Number);
  return a >= 0 && b > a && b <= 1 ? [a, b] : [0, 1];
}

// nanosOf returns the nanoseconds of a time that Date.parse cuts off.
export function nanosOf(time) {
  const digits = /\.(\d+)/.exec(time)?.[1] || '';
  return Number((digits.slice(3) + '000000').slice(0, 6));
}

const moreOf = (s) => {
  const o = s.object || {};
  return [o.name && s.level === 0 ? `${o.resource}/${o.name}` : '', s.actor && s.level === 0 ? s.actor : ''].filter(Boolean).join(' · ');
};

// unseenView says what a trace does not have because some servers did not answer: spans that are missing are not spans that did not happen.
export function unseenView(t) {
  if (!t.unseen?.length) return null;
  return h('div', { class: 'unseen', role: 'note' }, badge('warn', 'Not complete'),
    h('ul', { class: 'plain' }, t.unseen.slice(0, 20).map((u) => h('li', null, 'Not seen: the records of ' + u)), t.unseen.length > 20 && h('li', null, `and ${t.unseen.length - 20} more`)));
}

// wireView shows the bytes of a request and of its answer, or of a caller in the server's process the objects.
export function wireView(wire) {
  const none = wire.inProcess ? '(too large to be kept)' : '(not text)';
  const part = (title, body) => body && (body.size > 0 || body.text) && [h('h4', null, `${title}: ${body.size ?? body.text.length} bytes${body.type ? ' of ' + body.type : ''}`),
    h('pre', { class: 'code-block small', tabindex: '0', 'aria-label': title + ' body' }, pretty(body.text) || none)];
  return h('div', { class: 'wire' }, wire.inProcess && h('p', { class: 'hint' }, 'The caller is in the server’s process: no bytes were sent. This is the object, as JSON.'),
    part('Request', wire.request), part('Answer', wire.response));
}

function pretty(text) {
  if (!text) return '';
  try { return JSON.stringify(JSON.parse(text), null, 2); } catch { return text; }
}
