// Finds the documents and objects in texts as people paste them.

import assert from 'node:assert/strict';
import { load, randomNumbers } from './module.mjs';

const { documentsOf } = await load('documents.js');
const short = (d) => [d.line, d.end, d.apiVersion, d.kind, d.namespace, d.name || d.generateName].join(' ') + (d.problem ? ' !' : '');

for (const [text, ...want] of [
  [''], ['\n# nothing\n---\n---\n...\n'],
  ['apiVersion: v1\nkind: Pod\nmetadata:\n  name: a\n', '1 5 v1 Pod  a'],
  ['apiVersion: v1\r\nkind: Pod\r\nmetadata:\r\n  name: a', '1 4 v1 Pod  a'],
  ['\ufeff# a comment\n\nkind: "Pod" # why\napiVersion: \'v1\'\nmetadata: # here\n\n    # and here\n    labels: {name: x}\n    annotations:\n      name: y\n    name:   a # b\n    namespace: "n"\nspec:\n  name: no\n', '3 15 v1 Pod n a'],
  ['metadata: {labels: {name: x, list: [name: z]}, name: a, "namespace": \'n\'}\nkind: Pod\napiVersion: v1', '1 3 v1 Pod n a'],
  ['metadata: {labels: ' + '{a: '.repeat(90) + '0' + '}'.repeat(90) + ', name: a}\nkind: Pod\napiVersion: v1', '1 3 v1 Pod  a'],
  ['metadata: {name: a, labels: ' + '{a: '.repeat(300000) + '0' + '}'.repeat(300000) + '}\nkind: Pod\napiVersion: v1', '1 3 v1 Pod   !'], // it is not read level by level
  ['metadata: {\n  name: "a,b}",\n  namespace: n\n}\nkind: Pod\napiVersion: v1', '1 6 v1 Pod n a,b}'],
  ['apiVersion: v1\nkind: A\nmetadata: {name: a}\n--- # next\napiVersion: v1\nkind: B\nmetadata:\n  generateName: b-\n', '1 3 v1 A  a', '5 9 v1 B  b-'],
  ['--- {"apiVersion": "v1", "kind": "A", "metadata": {"name": "a"}}\n---\n{"apiVersion": "v1",\n "kind": "B", "metadata": {"name": "b"}}', '1 1 v1 A  a', '3 4 v1 B  b'],
  ['{"kind": "List", "apiVersion": "v1", "items": [{"apiVersion": "v1", "kind": "A", "metadata": {"name": "a"}}, {"apiVersion": "v1", "kind": "B", "metadata": {}}]}', '1 1 v1 A  a', '1 1 v1 B   !'],
  ['apiVersion: v1\nkind: List\nitems:\n- apiVersion: v1\n  kind: A\n  metadata:\n    name: a\n', '1 8 v1 List   !'],
  ['kind: ConfigMap\napiVersion: v1\nmetadata:\n  name: a\ndata:\n  file: |\n    kind: Pod\n    ---\n    metadata:\n      name: b\n', '1 11 v1 ConfigMap  a'],
  ['  apiVersion: v1\n  kind: Pod\n  metadata:\n    name: a\n', '1 5 v1 Pod  a'],
  ['kind: Pod\nmetadata:\n  name: a', '1 3  Pod  a !'],
  ['apiVersion: v1\nkind: Pod\nmetadata:\n  name: |\n    a\n', '1 6 v1 Pod   !'],
  ['apiVersion: v1\nkind: Pod\nmetadata: {name: ..}', '1 3 v1 Pod  .. !'], ['apiVersion: v1\nkind: Pod\nmetadata: {name: a, namespace: "."}', '1 3 v1 Pod . a !'],
  ['just text', '1 1     !'], ['{not json', '1 1     !'], ['[1]', '1 1     !'], ['- a', '1 1     !'], ['null', '1 1     !'], ['{"metadata": 1}', '1 1     !'],
  ['apiVersion: v1\nkind: Pod\nmetadata:\n  name: 12\n  namespace: "\\x"', '1 5 v1 Pod  12'],
  ["apiVersion: v1\nkind: Pod\nmetadata:\n  name: 'it''s'", "1 4 v1 Pod  it's"],
]) assert.deepEqual(documentsOf(text).map(short), want, JSON.stringify(text));

assert.throws(() => documentsOf('a: b\n---\n'.repeat(600)), /600 objects/);

// Any text gives documents with lines of the text, and no error; long lines take no long time.
const random = randomNumbers(3);
const pieces = ['apiVersion', 'kind', 'metadata', 'name', ': ', ':', '\n', '\n  ', '---\n', '...\n', '{', '}', '[', ']', '"', "'", '#', ',', ' ', '|', '&a', '*a', '\\', '\u0000', 'é', '- '];
for (let i = 0; i < 3000; i++) {
  const text = Array.from({ length: random(60) }, () => pieces[random(pieces.length)]).join('');
  for (const d of documentsOf(text)) {
    assert.ok(d.line >= 1 && d.end >= d.line && d.end <= text.split('\n').length, JSON.stringify(text));
    for (const k of ['apiVersion', 'kind', 'name', 'namespace', 'generateName', 'text']) assert.equal(typeof d[k], 'string');
    assert.ok(d.problem || (d.apiVersion && d.kind && (d.name || d.generateName)));
  }
}
for (const long of ['metadata: ' + '{'.repeat(20000), 'metadata: {' + 'a: b, '.repeat(20000), 'name: "' + '\\'.repeat(50000), "name: '" + "'".repeat(50001), ' '.repeat(100000) + '#']) documentsOf('apiVersion: v1\nkind: A\n' + long);
