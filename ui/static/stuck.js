// Everything in the cluster that is stuck, with the reason.

import { h, fill, badge, empty, announce } from './dom.js';
import { getJSON, kinds, splitExplanations, TRACES } from './api.js';
import { objectLink } from './app.js';
import { answerView } from './why.js';

export function show({ main, signal, ns }) {
  const box = h('div', { class: 'stack' });
  const count = h('span', { class: 'muted', role: 'status' });
  fill(main, h('div', { class: 'head' }, h('h1', null, 'Stuck'), count), h('p', { class: 'hint' }, 'What will not go on before somebody acts, at which hop it is, and why. “proa why” says the same in the terminal.'), box);
  fill(box, h('p', { class: 'hint' }, 'Asking the server…'));
  let before = '';
  const ask = async () => {
    try {
      const [doc, all] = await Promise.all([getJSON(TRACES + (ns ? '/namespaces/' + encodeURIComponent(ns) : '') + '/explanations', { signal }), kinds()]);
      const now = JSON.stringify(doc.items || []);
      if (now === before) return;
      before = now;
      const { explanations: list, unseen } = splitExplanations(doc);
      const notSeen = unseen.length > 0 && h('div', { class: 'unseen', role: 'note' }, badge('warn', 'Not complete'), h('p', null, 'More may be stuck in what you may not see:'),
        h('ul', { class: 'plain' }, unseen.slice(0, 20).map((u) => h('li', null, 'Not seen: ' + u)), unseen.length > 20 && h('li', null, `and ${unseen.length - 20} more`)));
      fill(count, String(list.length));
      announce(list.length + ' objects are stuck');
      if (!list.length) { fill(box, empty(unseen.length ? 'Nothing that you may see is stuck.' : 'Nothing is stuck.', ns ? 'In the namespace ' + ns + '.' : ''), notSeen); return; }
      fill(box, list.slice(0, 200).map((a) => {
        const k = all.find((x) => x.kind === a.object.kind);
        const title = h('span', null, h('span', { class: 'muted' }, a.object.kind + ' '), h('span', { class: 'strong' }, a.object.name), a.object.namespace && h('span', { class: 'muted' }, ' in ' + a.object.namespace));
        return h('article', { class: 'panel stuck-item' },
          h('h2', { class: 'stuck-title' }, k ? h('a', { href: objectLink(k, k.namespaced ? a.object.namespace : '', a.object.name, { tab: 'why' }) }, title) : title),
          answerView(a, all, false));
      }), list.length > 200 && h('p', { class: 'hint' }, `The first 200 of ${list.length}.`), notSeen);
    } catch (e) {
      if (signal.aborted) return;
      if (e.code === 404) fill(box, empty('This server does not explain.', 'The list comes from the API trace.proa.dev/v1, which this API server does not have.', h('p', null, 'In the terminal: ', h('code', null, 'proa why'))));
      else fill(box, empty(e.code === 403 ? 'You may not list explanations here.' : 'There is no answer.', e.message));
    }
  };
  ask();
  const timer = setInterval(() => { if (!document.hidden) ask(); }, 3000);
  signal.addEventListener('abort', () => clearInterval(timer));
}
