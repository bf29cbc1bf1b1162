// Changes the rows of a list at random and compares them with a list that is sorted and searched anew; counts what a change costs.

import assert from 'node:assert/strict';
import { load, randomNumbers } from './module.mjs';

const { Rows, natural } = await load('rows.js');

assert.deepEqual(['pod-10', 'pod-9', 'Pod-8', 'pod-010b', 'pod-', 'a', 'pod-99999999999999999999', 'pod-100'].sort((a, b) => (natural(a) < natural(b) ? -1 : 1)),
  ['a', 'pod-', 'Pod-8', 'pod-9', 'pod-10', 'pod-010b', 'pod-100', 'pod-99999999999999999999']);

const random = randomNumbers(7);
const textOf = (r) => `${r.name} ${r.state}`;
const expected = (items, words, by, sign) => [...items].filter(([, r]) => words.every((w) => textOf(r).includes(w)))
  .sort(([k, a], [l, b]) => { const x = by(a, k); const y = by(b, l); return x !== y ? (x < y ? -sign : sign) : k < l ? -1 : 1; }).map(([k]) => k);

for (let run = 0; run < 30; run++) {
  const items = new Map();
  const rows = new Rows(textOf);
  let words = [];
  let by = (r, key) => natural(key);
  let sign = 1;
  for (let i = 0; i < 150; i++) {
    const what = random(10);
    if (what === 0) { words = [[], ['a'], ['run'], ['run', '1'], ['running', '12'], ['nothing']][random(6)]; rows.search(words); }
    else if (what === 1) { by = random(2) ? (r, key) => natural(key) : (r) => natural(r.state); sign = random(2) ? 1 : -1; rows.sortBy(by, sign < 0); }
    else if (what === 2 && random(4) === 0) { if (random(3) === 0) items.clear(); rows.reset(items); }
    else {
      const keys = new Set();
      for (let n = random(20); n > 0; n--) {
        const key = 'pod-' + random(60);
        keys.add(key);
        if (random(3)) items.set(key, { name: key, state: ['running', 'pending', 'failed'][random(3)] });
        else items.delete(key);
      }
      rows.apply(keys, items);
    }
    assert.deepEqual(rows.shown.map((e) => e.key), expected(items, words, by, sign));
    assert.equal(rows.order.length, items.size);
    for (const e of rows.shown) assert.equal(e.row, items.get(e.key));
  }
}

// What changes cost in a list of ten thousand.
const cost = { text: 0, sort: 0, compare: 0, search: 0 };
class Counted extends Rows {
  compare(a, b) { cost.compare++; return super.compare(a, b); }
  isFound(e) { cost.search++; return super.isFound(e); }
}
const items = new Map(Array.from({ length: 10000 }, (_, i) => ['pod-' + i, { name: 'pod-' + i, state: 'running' }]));
const rows = new Counted((r) => { cost.text++; return textOf(r); });
rows.sortBy((r, key) => { cost.sort++; return natural(key); }, false);
rows.reset(items);
const costOf = (f) => { Object.assign(cost, { text: 0, sort: 0, compare: 0, search: 0 }); f(); return { ...cost }; };

let keys = Array.from({ length: 20 }, (_, i) => 'pod-' + i * 7);
for (const k of keys) items.set(k, { name: k, state: 'failed' });
assert.deepEqual(costOf(() => rows.apply(keys, items)), { text: 20, sort: 20, compare: 0, search: 20 }, 'rows that change in place');

keys = Array.from({ length: 20 }, (_, i) => 'new-' + i);
for (const k of keys) items.set(k, { name: k, state: 'pending' });
let now = costOf(() => rows.apply(keys, items));
assert.ok(now.text === 20 && now.sort === 20 && now.compare < 20 * 25, 'rows that are new: ' + JSON.stringify(now));

for (const k of keys) items.delete(k);
assert.deepEqual(costOf(() => rows.apply(keys, items)), { text: 0, sort: 0, compare: 0, search: 0 }, 'rows that go');

now = costOf(() => rows.search(['pod-12']));
assert.deepEqual(now, { text: 0, sort: 0, compare: 0, search: 10000 }, 'the first letters of a search');
now = costOf(() => rows.search(['pod-123']));
assert.ok(now.search < 1200 && now.compare === 0, 'the next letter looks at what was found: ' + JSON.stringify(now));
