// How an apply travels: the twelve hops explained in the order in which a write passes them, played from a real trace.

import { h, fill, icon, nanos, announce, reducedMotion, setText } from './dom.js';
import { getJSON, TRACES } from './api.js';
import { hops, hopGroup } from './hops.js';
import { setParams } from './app.js';
import { nanosOf, unseenView, wireView } from './trace.js';

// stepsOf returns the steps in which a trace is played: the parts of its critical path in their order, each with its hop. A write is played
// as the hops that it passed. Together the steps take as long as the trace. A hop that is in the trace and not on its critical path is a step
// that adds no time.
export function stepsOf(trace) {
  const spans = trace.spans || [];
  const byId = new Map(spans.map((s) => [s.id, s]));
  const shares = trace.critical || [];
  const steps = [];
  const startOf = (s) => Date.parse(s.start) * 1e6 + nanosOf(s.start);
  let at = 0; // when the span began that is looked at
  const add = (hop, took, text) => { if (took > 0) steps.push({ hop, took, text, at }); };
  for (let i = 0; i < shares.length; i++) {
    const { span: id, name, wait } = shares[i];
    let { took } = shares[i];
    const span = byId.get(id);
    if (span) at = startOf(span);
    if (name === 'watch') { add(8, took, 'watch'); continue; }
    if (!span || name === 'not recorded') { add(span ? hopGroup(span) : steps.at(-1)?.hop || 1, took, name); continue; }
    if (span.hop) { add(span.hop, took, name + (wait ? ' (waiting)' : '')); continue; }
    // The time in which a write waits and the time in which it works are two shares.
    if (shares[i + 1]?.span === id && shares[i + 1].name === name) took += shares[++i].took;
    const parts = spans.filter((s) => s.parent === id && s.hop && (s.hidden || s.name === s.hopName));
    const title = span.hidden ? 'hidden (no access)' : writeTitle(span);
    for (const [n, part] of parts.entries()) { // what follows from a write may begin before the write has ended
      const own = n === parts.length - 1 ? took : Math.min(part.took, took);
      add(part.hop, own, `${title}: ${hops[part.hop].name}`);
      took -= own;
    }
    if (!parts.length) add(hopGroup(span), took, title);
  }
  const rest = (trace.took || 0) - steps.reduce((sum, s) => sum + s.took, 0);
  if (rest > 0 && steps.length) add(byId.get(trace.stuckSpan)?.hop || steps.at(-1).hop, rest, trace.state === 'Running' ? 'not ended yet' : 'not recorded');
  const played = new Set(steps.map((s) => s.hop));
  for (const s of spans) {
    if (!s.hop || played.has(s.hop) || s.open) continue;
    played.add(s.hop);
    const behind = steps.findLastIndex((x) => x.at <= startOf(s)) + 1;
    steps.splice(behind, 0, { hop: s.hop, took: 0, text: `${s.hidden ? 'hidden (no access)' : s.name}, ${nanos(s.took)} beside the critical path`, at: startOf(s) });
  }
  return steps;
}

const MAX_BODIES = 6; // that are shown at one hop

const writeTitle = (s) => s.name + (s.object?.name ? ' ' + s.object.name : '');

export function show({ main, route, signal }) {
  const state = { of: route.params.get('of') || '', at: Number(route.params.get('hop')) || 0, playing: false };
  const stations = h('ol', { class: 'stations', 'aria-label': 'The twelve hops' });
  const dot = h('span', { class: 'station-dot', 'aria-hidden': 'true' });
  const clock = h('span', { class: 'play-clock', role: 'timer' });
  const sentence = h('p', { class: 'trace-sentence' });
  const unseen = h('div');
  const article = h('div', { class: 'hop-cards' });
  const picker = h('select', { class: 'select', 'aria-label': 'Trace to play', onchange: () => { state.of = picker.value; setParams({ of: state.of }); load(); } });
  const playButton = h('button', { type: 'button', class: 'button primary', onclick: () => (state.playing ? stop() : play()) });
  const previous = h('button', { type: 'button', class: 'icon-button', 'aria-label': 'Previous hop', onclick: () => go(Math.max(1, state.at - 1)) }, icon('previous'));
  const next = h('button', { type: 'button', class: 'icon-button', 'aria-label': 'Next hop', onclick: () => go(Math.min(12, state.at + 1)) }, icon('next'));
  fill(main,
    h('div', { class: 'head' }, h('h1', null, 'From “kubectl apply” to traffic')),
    h('p', { class: 'lead' }, 'One write passes twelve hops before a Pod serves. Read them in order, or play a real trace and see where the time goes.'),
    h('div', { class: 'toolbar' }, picker, playButton, previous, next, clock), sentence, unseen,
    h('div', { class: 'learn' }, h('div', { class: 'track' }, stations, dot), article));

  const cards = [];
  hops.forEach((hop, n) => {
    if (!hop) return;
    const real = h('div', { class: 'hop-real' });
    const card = h('section', { class: 'panel hop-card hop-' + n, id: 'hop-card-' + n, tabindex: '-1', 'aria-labelledby': 'hop-title-' + n },
      h('div', { class: 'hop-card-head' }, h('span', { class: 'hop-big' }, n), h('div', null, h('h2', { id: 'hop-title-' + n }, hop.title), h('p', { class: 'muted' }, hop.part))),
      h('p', null, hop.text), real,
      h('dl', { class: 'facts narrow' }, h('dt', null, 'Gets stuck'), h('dd', null, hop.wrong), h('dt', null, 'See it yourself'), h('dd', null, h('code', null, hop.look))));
    cards[n] = { card, real };
    article.appendChild(card);
    stations.appendChild(h('li', null, h('button', { type: 'button', class: ['station', 'hop-' + n], onclick: () => { stop(); go(n); } }, h('span', { class: 'hop-number' }, n), h('span', { class: 'station-name' }, hop.name), h('span', { class: 'station-time muted' }))));
  });

  const mark = (n, speak) => {
    if (state.at === n) return;
    state.at = n;
    setParams({ hop: n || '' });
    [...stations.children].forEach((li, i) => {
      const b = li.firstChild;
      b.classList.toggle('now', i + 1 === n);
      b.classList.toggle('passed', i + 1 < n);
      if (i + 1 === n) b.setAttribute('aria-current', 'step');
      else b.removeAttribute('aria-current');
    });
    for (const c of cards) c?.card.classList.toggle('now', c === cards[n]);
    if (speak && n) announce(`Hop ${n}: ${hops[n].title}`);
    moveDot(n);
  };
  const moveDot = (n) => {
    const b = stations.children[Math.max(0, n - 1)]?.firstChild;
    if (!b || !n) { dot.hidden = true; return; }
    dot.hidden = false;
    dot.className = 'station-dot hop-' + n;
    dot.style.transform = `translateY(${b.offsetTop + b.offsetHeight / 2}px)`;
  };
  let jumping = 0;
  const go = (n, speak = true) => {
    mark(n, speak);
    jumping = Date.now();
    cards[n]?.card.scrollIntoView({ block: 'center', behavior: reducedMotion() ? 'auto' : 'smooth' });
  };

  // As one reads, the station of the card in the middle lights up.
  const seen = new IntersectionObserver((entries) => {
    if (state.playing || Date.now() - jumping < 900 || article.clientHeight === 0) return;
    if (document.getElementById('main').scrollTop < 60) { mark(1, false); return; }
    for (const e of entries) if (e.isIntersecting) mark(cards.findIndex((c) => c?.card === e.target), false);
  }, { root: document.getElementById('main'), rootMargin: '-40% 0px -45% 0px' });
  for (const c of cards) if (c) seen.observe(c.card);

  // --- the real trace ---

  let trace = null;
  let mayReadBodies = true;
  let steps = [];
  const load = async () => {
    stop();
    trace = null;
    steps = [];
    if (state.of) {
      const [ns, name] = [state.of.slice(0, state.of.indexOf('/')), state.of.slice(state.of.indexOf('/') + 1)];
      try {
        const read = (resource) => getJSON(`${TRACES}/namespaces/${encodeURIComponent(ns)}/${resource}/${encodeURIComponent(name)}`, { signal });
        mayReadBodies = true;
        trace = await read('wiretraces').catch((e) => { mayReadBodies = e.code !== 403; return read('traces'); }); // bodies need a right of their own
      } catch (e) {
        if (signal.aborted) return;
        setText(sentence, 'This trace could not be read: ' + e.message);
      }
    }
    drawTrace();
    if (state.at > 1) go(state.at, false); // the cards have grown
  };

  const drawTrace = () => {
    playButton.disabled = !trace;
    drawPlay();
    const sums = hops.map(() => ({ took: 0, wait: 0, n: 0, spans: [] }));
    for (const s of trace?.spans || []) {
      if (!s.hop || !sums[s.hop]) continue;
      const parent = trace.spans.find((p) => p.id === s.parent);
      if (parent && parent.hop === s.hop) continue; // its parent counts
      const sum = sums[s.hop];
      sum.took += s.took;
      sum.wait += s.wait || 0;
      sum.n++;
      sum.spans.push(s);
    }
    steps = trace ? stepsOf(trace) : [];
    if (trace && !steps.length) sums.forEach((s, n) => { if (s.n) steps.push({ hop: n, took: s.took / s.n, text: hops[n].name }); });
    fill(unseen, trace && unseenView(trace));
    setText(sentence, trace ? trace.summary || '' : state.of ? sentence.textContent : '');
    hops.forEach((hop, n) => {
      if (!hop) return;
      const s = sums[n];
      const time = stations.children[n - 1].querySelector('.station-time');
      setText(time, s.n ? nanos(s.took) : '');
      if (!trace) { fill(cards[n].real); return; }
      const bytes = bytesOf(n);
      const command = n === 1 && trace.command && h('p', null, h('code', null, trace.command), trace.user && ' as ' + trace.user);
      if (!s.n) { fill(cards[n].real, command ? h('h3', null, 'In this trace') : h('p', { class: 'hint' }, 'This trace has no span of this hop.'), command, bytes); return; }
      const longest = [...s.spans].sort((a, b) => b.took - a.took).slice(0, 4);
      fill(cards[n].real, h('h3', null, `In this trace: ${nanos(s.took)}${s.wait ? `, ${nanos(s.wait)} of it waiting` : ''}, ${s.n} ${s.n === 1 ? 'time' : 'times'}`), command,
        h('ul', { class: 'real-list' }, longest.map((x) => {
          const bar = h('span', { class: 'mini-bar' }, h('span', { class: 'bar-wait' }), h('span', { class: 'bar-work' }));
          bar.style.width = Math.max(1, x.took / longest[0].took * 100) + '%';
          bar.firstChild.style.width = (x.wait || 0) / (x.took || 1) * 100 + '%';
          bar.lastChild.style.width = 100 - (x.wait || 0) / (x.took || 1) * 100 + '%';
          return h('li', null, h('span', { class: 'real-name' }, x.hidden ? 'hidden (no access)' : x.name, x.object?.name && h('span', { class: 'muted' }, ` ${x.object.resource}/${x.object.name}`)), h('span', { class: 'mini' }, bar), h('span', null, nanos(x.took)),
            x.detail && h('code', { class: 'real-detail' }, x.detail));
        })), bytes);
    });
  };

  // bytesOf shows the bodies of writes at the hops where they matter, or says why there are none.
  const bytesOf = (n) => {
    const writes = trace.spans.filter((s) => !s.hop && !s.parent && !s.hidden);
    const [title, about, shown, part] = {
      1: ['The bytes that the client sent', 'the request', writes.slice(0, 1), 'request'],
      5: ['The bytes that were read as objects', 'the writes', writes, 'request'],
      7: ['The objects as they were stored and answered', 'the writes', writes, 'response'],
      10: ['The bytes of bindings', 'the bindings', writes.filter((s) => s.name.endsWith('/binding')), ''],
      11: ['The bytes of the status that nodes wrote', 'these writes', writes.filter((s) => s.name.endsWith('/status') && hopGroup(s) === 11), ''],
    }[n] || [];
    if (!title || !shown.length) return null;
    const kept = shown.filter((s) => s.wire);
    const without = shown.length - kept.length;
    const why = mayReadBodies ? 'The server keeps those of Secrets, Leases and Events never, not all when there are many requests, and removes old ones.' : 'You may not read bodies of requests (get wiretraces).';
    return h('div', { class: 'hop-bytes' }, h('h3', null, title),
      kept.slice(0, MAX_BODIES).map((s) => h('details', { open: n === 1 }, h('summary', null, writeTitle(s)), wireView(part ? { inProcess: s.wire.inProcess, [part]: s.wire[part] } : s.wire))),
      kept.length > MAX_BODIES && h('p', { class: 'hint' }, `and of ${kept.length - MAX_BODIES} more writes`),
      without > 0 && h('p', { class: 'hint' }, (kept.length ? `${without} more ${without === 1 ? 'write has' : 'writes have'} no bytes here. ` : `There are no bytes of ${about}. `) + why));
  };

  // --- playing ---

  const drawPlay = () => fill(playButton, icon(state.playing ? 'pause' : 'play'), state.playing ? 'Pause' : 'Play');
  let frame = 0;
  const play = () => {
    if (!steps.length) return;
    state.playing = true;
    drawPlay();
    // The first step at a hop lasts at least a second, and each longer the more of the time it took: otherwise most would pass unseen.
    const total = steps.reduce((sum, s) => sum + s.took, 0) || 1;
    const least = (s, i) => (steps.findIndex((x) => x.hop === s.hop) === i ? 1100 : 350) * (reducedMotion() ? 2 : 1);
    const list = steps.map((s, i) => ({ ...s, show: least(s, i) + 5000 * s.took / total }));
    let i = 0;
    let began = -1;
    let sum = 0;
    go(list[0].hop);
    const tick = (now) => {
      if (!state.playing || signal.aborted) return;
      const step = list[i];
      if (began < 0) began = now;
      const part = Math.min(1, (now - began) / step.show);
      setText(clock, `${nanos(sum + step.took * part)} · ${step.text}`);
      if (part >= 1) {
        sum += step.took;
        i++;
        began = now;
        if (i >= list.length) { setText(clock, `${nanos(sum)} in all`); stop(); return; }
        if (list[i].hop !== step.hop) go(list[i].hop);
      }
      frame = requestAnimationFrame(tick);
    };
    frame = requestAnimationFrame(tick);
  };
  const stop = () => { state.playing = false; cancelAnimationFrame(frame); drawPlay(); };
  signal.addEventListener('abort', () => { stop(); seen.disconnect(); });

  const loadList = async () => {
    try {
      const doc = await getJSON(TRACES + '/traces?limit=100', { signal });
      const names = (doc.items || []).map((t) => `${t.metadata.namespace || 'default'}/${t.metadata.name}`).slice(0, 100);
      if (state.of && !names.includes(state.of)) names.unshift(state.of);
      fill(picker, h('option', { value: '' }, names.length ? 'Choose a trace to play' : 'There are no traces yet'), names.map((n) => h('option', { value: n }, n)));
      picker.value = state.of;
    } catch (e) {
      if (signal.aborted) return;
      fill(picker, h('option', { value: '' }, e.code === 404 ? 'This server has no traces' : 'The traces could not be listed'));
      picker.disabled = true;
    }
  };
  loadList();
  drawTrace();
  if (state.of) load();
  const start = state.at;
  state.at = -1;
  if (start) go(start, false);
  else mark(0, false);
  const redraw = new ResizeObserver(() => moveDot(state.at));
  redraw.observe(stations);
  signal.addEventListener('abort', () => redraw.disconnect());
  return {
    update(to) { // the address was changed by hand, or by a link
      const of = to.params.get('of') || '';
      const hop = Number(to.params.get('hop')) || 0;
      stop();
      if (of !== state.of) { state.of = of; picker.value = of; load(); }
      if (hop) go(hop, false);
    },
  };
}
