// The traces of recent writes.

import { h, fill, empty } from './dom.js';
import { getJSON, kinds, TRACES, TABLE } from './api.js';
import { objectLink, linkTo } from './app.js';

export function show({ main, signal, ns }) {
  const box = h('div', { class: 'stack' });
  fill(main, h('div', { class: 'head' }, h('h1', null, 'Traces')), h('p', { class: 'hint' }, 'What happened between a request and the Pods that serve, for the objects that were written last.'), box);
  let before = '';
  const load = async () => {
    try {
      const [doc, all] = await Promise.all([getJSON(TRACES + (ns ? '/namespaces/' + encodeURIComponent(ns) : '') + '/traces', { signal, accept: TABLE }), kinds()]);
      const text = JSON.stringify(doc);
      if (text === before) return;
      before = text;
      const rows = doc.rows || [];
      if (!rows.length) { fill(box, empty('There are no traces yet.', 'Apply something, and look again.')); return; }
      const columns = (doc.columnDefinitions || []).map((c, i) => ({ ...c, i })).filter((c) => c.priority === 0);
      fill(box, h('div', { class: 'panel scroll' }, h('table', { class: 'table' },
        h('thead', null, h('tr', null, !ns && h('th', { scope: 'col' }, 'Namespace'), columns.map((c) => h('th', { scope: 'col' }, c.name)), h('th', { scope: 'col' }, h('span', { class: 'sr' }, 'Play')))),
        h('tbody', null, rows.slice(0, 500).map((r) => {
          const m = r.object?.metadata || {};
          const name = m.name || String(r.cells[0]);
          const [resource, object = ''] = [name.slice(0, name.indexOf(':')), name.slice(name.indexOf(':') + 1)];
          const k = all.find((x) => x.resource + (x.group ? '.' + x.group : '') === resource);
          return h('tr', null, !ns && h('td', null, m.namespace || ''), columns.map((c) => h('td', null, c.name.toLowerCase() === 'name' && k
            ? h('a', { href: objectLink(k, k.namespaced ? m.namespace : '', object, { tab: 'trace' }) }, name) : String(r.cells[c.i] ?? ''))),
          h('td', null, h('a', { href: linkTo('learn', { of: `${m.namespace || 'default'}/${name}` }) }, 'Play')));
        })))), rows.length > 500 && h('p', { class: 'hint' }, `The first 500 of ${rows.length}.`));
    } catch (e) {
      if (signal.aborted) return;
      fill(box, empty(e.code === 404 ? 'This server has no traces.' : e.code === 403 ? 'You may not list traces here.' : 'The traces could not be read.', e.message));
    }
  };
  load();
  const timer = setInterval(() => { if (!document.hidden) load(); }, 3000);
  signal.addEventListener('abort', () => clearInterval(timer));
}
