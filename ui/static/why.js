// Why an object is as it is: the hop, one sentence, the evidence, and what to do. The server decides it; this only shows it.

import { h, fill, icon, badge, empty, when } from './dom.js';
import { getJSON, kinds, TRACES, traceName } from './api.js';
import { objectLink, linkTo } from './app.js';
import { hopTag } from './hops.js';

const states = { Working: 'ok', Waiting: 'progress', Unknown: 'unknown', Stuck: 'bad' };

// refLink links an object of an answer, once the kinds are known.
function refLink(ref, all, tab) {
  const k = all.find((x) => x.kind === ref.kind);
  const text = `${ref.kind} ${ref.name}`;
  return k ? h('a', { href: objectLink(k, k.namespaced ? ref.namespace : '', ref.name, { tab }) }, text) : h('span', null, text);
}

// answerView shows an answer and those that it leads to.
export function answerView(a, all, deep = true) {
  const chain = [];
  for (let at = a; at && chain.length < 8; at = at.through) chain.push(at);
  const last = chain[chain.length - 1];
  return h('div', { class: 'answer' },
    h('div', { class: 'answer-head' }, badge(states[a.state] || 'unknown', a.state), last.hop ? hopTag(last.hop, true) : null),
    h('p', { class: 'cause' }, a.cause),
    chain.length > 1 && h('ol', { class: 'through' }, chain.slice(1).map((x) => h('li', null, 'because of ', refLink(x.object, all, 'why'), ': ', x.cause))),
    deep && chain.map((x) => part(x, all)),
    deep && a.unseen?.length > 0 && h('section', null, h('h3', null, 'Not seen'), h('ul', null, a.unseen.map((u) => h('li', null, u)))));
}

function part(a, all) {
  return [
    a.evidence?.length > 0 && h('section', null, h('h3', null, `Evidence: ${a.object.kind} ${a.object.name}`), h('table', { class: 'table' },
      h('thead', null, h('tr', null, ['Object', 'Field', 'Value', 'Time'].map((t) => h('th', { scope: 'col' }, t)))),
      h('tbody', null, a.evidence.map((e) => h('tr', null, h('td', { class: 'nowrap' }, refLink(e.object, all)), h('td', null, h('code', null, e.field)), h('td', null, e.value), h('td', { class: 'nowrap' }, e.time ? when(e.time) : '')))))),
    a.chain?.length > 0 && h('section', null, h('h3', null, 'The chain'), h('ol', { class: 'chain' }, a.chain.map((s) => h('li', null, badge(s.ok ? 'ok' : 'bad', s.name), h('span', null, s.text))))),
    a.nodes?.length > 0 && h('section', null, h('h3', null, 'Each node'), h('table', { class: 'table' },
      h('thead', null, h('tr', null, ['Node', 'Fits', 'Score', 'Plugin', 'Reason, or the score of each plugin'].map((t) => h('th', { scope: 'col' }, t)))),
      h('tbody', null, a.nodes.slice(0, MAX_NODES).map(nodeRow))), nodesLeftOut(a)),
    a.actions?.length > 0 && h('section', { class: 'do' }, h('h3', null, 'What to do'), h('ul', null, a.actions.map((t) => h('li', null, withCommands(t))))),
  ];
}

const MAX_NODES = 500; // that are shown

// nodeRow shows what the scheduler found about a node, as the terminal does.
function nodeRow(n) {
  const scores = (n.scores || []).filter((s) => s.score !== 0).map((s) => `${s.plugin} ${s.score}`).join(', ');
  const hasScore = n.score !== undefined && n.score !== null;
  return h('tr', { class: n.chosen && 'chosen' },
    h('td', null, n.hidden ? [icon('hidden'), ' hidden (no access)'] : n.node, n.chosen && [' ', badge('ok', 'chosen')]),
    h('td', null, badge(n.reason ? 'bad' : 'ok', n.reason ? 'no' : 'yes')), h('td', null, hasScore ? n.score : ''), h('td', null, n.plugin || ''),
    h('td', null, n.reason || scores || (hasScore ? '' : 'the only node that fits')));
}

// nodesLeftOut says how many nodes the table does not have.
function nodesLeftOut(a) {
  const n = Math.max(0, a.nodes.length - MAX_NODES) + (a.nodesLeftOut || 0);
  return n > 0 && h('p', { class: 'hint' }, `${n} more ${n === 1 ? 'node is' : 'nodes are'} not shown.`);
}

// withCommands sets quoted commands in an action apart.
function withCommands(text) {
  if (/^(kubectl|proa) [^:;]*$/.test(text)) return h('code', null, text);
  return text.split(/("(?:kubectl|proa)[^"]*"|`[^`]*`)/).map((p, i) => (i % 2 ? h('code', null, p.slice(1, -1)) : p));
}

export function show(box, ctx) {
  fill(box, h('p', { class: 'hint' }, 'Asking the server…'));
  let before = '';
  const ask = async () => {
    try {
      const [answer, all] = await Promise.all([getJSON(`${TRACES}/namespaces/${encodeURIComponent(ctx.ns || 'default')}/explanations/${encodeURIComponent(traceName(ctx.kind, ctx.name))}`, { signal: ctx.signal }), kinds()]);
      const now = JSON.stringify(answer);
      if (now !== before) fill(box, h('div', { class: 'panel' }, answerView(answer, all), h('p', { class: 'hint' }, 'The same in the terminal: ', h('code', null, `proa why ${ctx.kind.resource}/${ctx.name}${ctx.ns ? ' -n ' + ctx.ns : ''}`))));
      before = now;
    } catch (e) {
      if (ctx.signal.aborted) return;
      if (e.code === 404) fill(box, empty('This server does not explain this object.', 'Explanations come from the API trace.proa.dev/v1, which this API server does not have for it.', h('p', null, 'In the terminal: ', h('code', null, `proa why ${ctx.kind.resource}/${ctx.name}${ctx.ns ? ' -n ' + ctx.ns : ''}`))));
      else fill(box, empty(e.code === 403 ? 'You may not ask for explanations here.' : 'There is no answer.', e.message, h('p', null, h('a', { href: linkTo('overview') }, 'Overview'))));
    }
  };
  ask();
  const timer = setInterval(() => { if (!document.hidden) ask(); }, 3000);
  ctx.signal.addEventListener('abort', () => clearInterval(timer));
  return {};
}
