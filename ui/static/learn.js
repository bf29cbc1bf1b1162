// How an apply travels: the twelve hops explained in the order in which a write passes them, played from a real trace.

import { h, fill, icon, nanos, announce, reducedMotion, setText } from './dom.js';
import { getJSON, TRACES } from './api.js';
import { hops } from './hops.js';
import { setParams } from './app.js';
import { unseenView, wireView } from './trace.js';

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
  const steps = []; // [hop, nanoseconds, text]
  const load = async () => {
    stop();
    trace = null;
    steps.length = 0;
    if (state.of) {
      const [ns, name] = [state.of.slice(0, state.of.indexOf('/')), state.of.slice(state.of.indexOf('/') + 1)];
      try {
        const read = (resource) => getJSON(`${TRACES}/namespaces/${encodeURIComponent(ns)}/${resource}/${encodeURIComponent(name)}`, { signal });
        trace = await read('wiretraces').catch(() => read('traces')); // bodies need a right of their own
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
    for (const s of (trace?.critical || [])) {
      const hop = trace.spans.find((x) => x.id === s.span)?.hop || 0;
      if (hop) steps.push([hop, s.took, s.name + (s.wait ? ' (waiting)' : '')]);
    }
    if (trace && !steps.length) sums.forEach((s, n) => { if (s.n) steps.push([n, s.took / s.n, hops[n].name]); });
    fill(unseen, trace && unseenView(trace));
    setText(sentence, trace ? trace.summary || '' : state.of ? sentence.textContent : '');
    hops.forEach((hop, n) => {
      if (!hop) return;
      const s = sums[n];
      const time = stations.children[n - 1].querySelector('.station-time');
      setText(time, s.n ? nanos(s.took) : '');
      if (!trace) { fill(cards[n].real); return; }
      const sent = n === 1 ? (trace.spans || []).find((x) => x.wire) : null;
      if (n === 1 && (trace.command || sent)) {
        fill(cards[n].real, h('h3', null, 'In this trace'), trace.command && h('p', null, h('code', null, trace.command), trace.user && ' as ' + trace.user), sent && [h('p', { class: 'muted' }, sent.name), wireView(sent.wire)]);
        return;
      }
      if (!s.n) { fill(cards[n].real, h('p', { class: 'hint' }, 'This trace has no span of this hop.')); return; }
      const longest = [...s.spans].sort((a, b) => b.took - a.took).slice(0, 4);
      fill(cards[n].real, h('h3', null, `In this trace: ${nanos(s.took)}${s.wait ? `, ${nanos(s.wait)} of it waiting` : ''}, ${s.n} ${s.n === 1 ? 'time' : 'times'}`),
        h('ul', { class: 'real-list' }, longest.map((x) => {
          const bar = h('span', { class: 'mini-bar' }, h('span', { class: 'bar-wait' }), h('span', { class: 'bar-work' }));
          bar.style.width = Math.max(1, x.took / longest[0].took * 100) + '%';
          bar.firstChild.style.width = (x.wait || 0) / (x.took || 1) * 100 + '%';
          bar.lastChild.style.width = 100 - (x.wait || 0) / (x.took || 1) * 100 + '%';
          return h('li', null, h('span', { class: 'real-name' }, x.hidden ? 'hidden (no access)' : x.name, x.object?.name && h('span', { class: 'muted' }, ` ${x.object.resource}/${x.object.name}`)), h('span', { class: 'mini' }, bar), h('span', null, nanos(x.took)),
            x.detail && h('code', { class: 'real-detail' }, x.detail), x.wire && wireView(x.wire));
        })));
    });
  };

  // --- playing ---

  const drawPlay = () => fill(playButton, icon(state.playing ? 'pause' : 'play'), state.playing ? 'Pause' : 'Play');
  let frame = 0;
  const play = () => {
    if (!steps.length) return;
    state.playing = true;
    drawPlay();
    // Each step lasts at least a second, and longer the more of the time it took: otherwise most would pass unseen.
    const total = steps.reduce((a, [, t]) => a + t, 0) || 1;
    const list = steps.map(([hop, t, name]) => ({ hop, t, name, show: reducedMotion() ? 2500 : 1100 + 5000 * t / total }));
    let i = 0;
    let began = performance.now();
    let sum = 0;
    go(list[0].hop);
    const tick = (now) => {
      if (!state.playing || signal.aborted) return;
      const step = list[i];
      const part = Math.min(1, (now - began) / step.show);
      setText(clock, `${nanos(sum + step.t * part)} · ${step.name}`);
      if (part >= 1) {
        sum += step.t;
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
  return { update() {} };
}
