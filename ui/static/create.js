// Creates and changes objects from a text of YAML: each document is checked by a dry run, its difference or its error is shown, and then all
// are applied on the server, in their order.

import { h, fill, badge } from './dom.js';
import { getJSON, kinds as readKinds, objectPath, listPath, request, session } from './api.js';
import { objectLink } from './app.js';
import { documentsOf } from './documents.js';
import { shownObject, showDiff, warningsOf } from './object.js';
import { toYAML } from './yaml.js';

const MAX_TEXT = 3 << 20; // characters
const EXAMPLE = 'apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: example\ndata:\n  key: value\n';

let draft = ''; // the text stays when the viewer looks at something else, and goes with the viewer
window.addEventListener('proa-logout', () => { draft = ''; });

// written writes an object without what the server alone decides. The values of a Secret are hidden, unless it is for a comparison: the text
// in the editor has the new ones, and nobody has asked for those that are stored. Before is the object as it is now.
function written(o, { values, before } = {}) {
  const { status, ...copy } = shownObject(o, { values, before });
  for (const k of ['uid', 'resourceVersion', 'generation', 'creationTimestamp', 'selfLink']) delete copy.metadata[k];
  return toYAML(copy);
}

export function show({ main, signal, ns }) {
  let checked = null; // the text whose every document the server would accept
  const area = h('textarea', { class: 'editor', rows: '22', spellcheck: 'false', autocomplete: 'off', 'aria-label': 'YAML of one or more objects', 'aria-describedby': 'create-help', placeholder: EXAMPLE });
  const namespace = h('input', { class: 'input short', type: 'text', value: ns || session.namespace, 'aria-label': 'Namespace of objects that name none', spellcheck: 'false' });
  const force = h('input', { type: 'checkbox' });
  const file = h('input', { type: 'file', class: 'input', 'aria-label': 'Read a file', accept: '.yaml,.yml,.json' });
  const check = h('button', { type: 'button', class: 'button', onclick: () => run(true) }, 'Check (dry run)');
  const apply = h('button', { type: 'button', class: 'button primary', disabled: true, onclick: () => run(false) }, 'Apply');
  const sum = h('p', { role: 'status' });
  const results = h('ol', { class: 'stack', 'aria-label': 'Objects' });
  fill(main, h('div', { class: 'head' }, h('h1', null, 'Create')),
    h('p', { class: 'hint', id: 'create-help' }, 'Paste YAML or JSON, several objects with a line “---” between them. Check asks the server and shows what would change; nothing is written before you apply.'),
    h('div', { class: 'toolbar' }, check, apply, h('label', { class: 'check' }, 'Namespace', namespace), h('label', { class: 'check' }, force, 'Take over fields that others manage'), file), area, sum, results);

  area.value = draft;
  const stale = () => { draft = area.value; apply.disabled = checked === null || key() !== checked; };
  const key = () => [area.value, namespace.value, force.checked].join('\u0000');
  for (const el of [area, namespace]) el.addEventListener('input', stale);
  force.addEventListener('change', stale);
  file.addEventListener('change', async () => {
    const [chosen] = file.files;
    if (!chosen) return;
    if (chosen.size > MAX_TEXT) { fill(sum, badge('bad', 'The file is larger than 3 MB.')); return; }
    area.value = await chosen.text();
    file.value = '';
    stale();
  });
  area.addEventListener('keydown', (e) => { if (e.key === 'Enter' && (e.ctrlKey || e.metaKey)) run(apply.disabled); });

  // goTo selects a document in the editor.
  const goTo = (doc) => {
    const lines = area.value.split('\n');
    const from = lines.slice(0, doc.line - 1).join('\n').length + (doc.line > 1 ? 1 : 0);
    const to = lines.slice(0, doc.end).join('\n').length;
    area.focus();
    area.setSelectionRange(from, to);
    area.scrollTop = (doc.line - 1) / lines.length * area.scrollHeight - area.clientHeight / 3;
  };

  // place makes the place of a document's result.
  const place = (doc, i) => {
    doc.state = h('span', null, badge('idle', 'Waiting'));
    doc.body = h('div', { class: 'stack' });
    const names = [doc.kind || 'Object', doc.name || (doc.generateName && doc.generateName + '…')].filter(Boolean).join(' ');
    return h('li', null, h('article', { class: 'panel stack' }, h('div', { class: 'row' }, h('h2', null, `${i + 1}. ${names}`), doc.state,
      h('button', { type: 'button', class: 'link', onclick: () => goTo(doc) }, doc.end > doc.line ? `lines ${doc.line} to ${doc.end}` : `line ${doc.line}`)), doc.body));
  };
  const say = (doc, state, text, ...body) => { fill(doc.state, badge(state, text)); fill(doc.body, ...body); };

  // findKind finds the resource of a document, and asks the server again for kinds that a definition has just brought.
  const findKind = async (doc, wait) => {
    const [group, version] = doc.apiVersion.includes('/') ? doc.apiVersion.split('/') : ['', doc.apiVersion];
    for (let tries = 0; ; tries++) {
      const k = (await readKinds(tries > 0)).find((x) => x.group === group && x.kind === doc.kind);
      if (k) return { ...k, version };
      if (!wait || tries >= 20 || signal.aborted) return null;
      await new Promise((resolve) => { setTimeout(resolve, 250); });
    }
  };

  // sendDocument sends one document and shows what became of it. It returns whether it was accepted.
  const sendDocument = async (doc, dry, before) => {
    if (doc.problem) { say(doc, 'bad', 'Not sent', h('p', { class: 'problem' }, doc.problem)); return false; }
    const brought = before.some((d) => d.kind === 'CustomResourceDefinition');
    const k = await findKind(doc, brought && !dry);
    if (!k && brought && dry) { say(doc, 'progress', 'Later', h('p', null, 'Its kind is defined above, so that it can be checked only when that is applied.')); return true; }
    if (!k) { say(doc, 'bad', 'Not sent', h('p', { class: 'problem' }, `The server has no ${doc.kind} in ${doc.apiVersion}.`)); return false; }
    const where = k.namespaced ? doc.namespace || namespace.value.trim() || 'default' : '';
    const query = '?fieldManager=proa-dashboard&fieldValidation=Strict' + (dry ? '&dryRun=All' : '');
    try {
      // null if there is none, undefined if the viewer may not read it: to write one needs no right to read it.
      const present = doc.name ? await getJSON(objectPath(k, where, doc.name), { signal }).catch((e) => { if (e.code === 404) return null; if (e.code === 403) return undefined; throw e; }) : null;
      const resp = doc.name
        ? await request(objectPath(k, where, doc.name) + query + (force.checked ? '&force=true' : ''), { method: 'PATCH', contentType: 'application/apply-patch+yaml', body: doc.text, signal })
        : await request(listPath(k, where) + query, { method: 'POST', contentType: 'application/yaml', body: doc.text, signal });
      const warnings = warningsOf(resp.headers.get('Warning'));
      const result = await resp.json();
      const same = present && written(present, { values: true }) === written(result, { values: true });
      if (present === undefined) say(doc, 'ok', dry ? 'Accepted' : 'Applied', warnings, h('p', { class: 'hint' }, 'You may not read the present object, so the page does not know what changes.'));
      else if (dry) say(doc, present ? (same ? 'idle' : 'progress') : 'ok', present ? (same ? 'Unchanged' : 'Changes') : 'New', warnings, showDiff(present ? written(present) : '', written(result, { before: present })));
      else say(doc, 'ok', present ? (same ? 'Unchanged' : 'Changed') : 'Created', warnings, h('p', null, h('a', { href: objectLink(k, where, result.metadata.name) }, `${doc.kind} ${result.metadata.name}`), ' is revision ' + result.metadata.resourceVersion + '.'));
      return true;
    } catch (e) {
      if (signal.aborted) return false;
      if (dry && e.code === 404 && before.some((d) => d.kind === 'Namespace' && d.name === where)) { say(doc, 'progress', 'Later', h('p', null, `Its namespace ${where} is created above, so that it can be checked only when that is applied.`)); return true; }
      const line = /yaml: line (\d+)/.exec(e.message);
      const causes = e.causes || [];
      say(doc, 'bad', e.code === 409 ? 'Conflict' : dry ? 'The server would refuse it' : 'The server refused it', h('div', { class: 'problem', role: 'alert' }, h('p', null, e.message),
        causes.length > 0 && h('ul', null, causes.map((c) => h('li', null, (c.field ? c.field + ': ' : '') + c.message))),
        line && h('p', null, `Line ${line[1]} of the document is line ${doc.first - 1 + Number(line[1])} of the text.`),
        e.code === 409 && !force.checked && h('p', null, 'Somebody else manages these fields. “Take over fields that others manage” writes them nevertheless.')));
      return false;
    }
  };

  let busy = false;
  const run = async (dry) => {
    if (busy) return;
    let docs;
    const sent = key();
    checked = null;
    fill(results);
    try {
      if (area.value.length > MAX_TEXT) throw new Error('The text is larger than 3 MB.');
      docs = documentsOf(area.value);
      if (!docs.length) throw new Error('There is no object in the text.');
    } catch (e) {
      fill(sum, badge('bad', e.message));
      stale();
      return;
    }
    busy = check.disabled = apply.disabled = true;
    fill(sum, dry ? 'Checking…' : 'Applying…');
    fill(results, docs.map(place));
    let good = 0;
    for (const [i, doc] of docs.entries()) {
      if (signal.aborted) return;
      if (await sendDocument(doc, dry, docs.slice(0, i))) good++;
    }
    busy = check.disabled = false;
    const all = good === docs.length;
    const text = dry ? (all ? `The server would accept ${good === 1 ? 'it' : 'all ' + good}.` : `${docs.length - good} of ${docs.length} cannot be applied.`) : all ? `Applied ${good} of ${good}.` : `Applied ${good} of ${docs.length}.`;
    fill(sum, badge(all ? 'ok' : 'bad', text));
    if (dry && all) checked = sent;
    stale();
    if (!apply.disabled) apply.focus();
  };
  return { update() {} };
}
