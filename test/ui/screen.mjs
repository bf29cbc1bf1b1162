// Writes output of programs to the screen of the page's shell and looks at the text that it becomes.

import assert from 'node:assert/strict';
import fs from 'node:fs';

const source = fs.readFileSync(new URL('../../ui/static/screen.js', import.meta.url));
const { Screen } = await import('data:text/javascript;base64,' + source.toString('base64'));

for (const [parts, want] of [
  [['one\ntwo'], 'one\ntwo'],
  [['loading 10%\rloading 20%\r', 'done'], 'doneing 20%'],
  [['abc\b\bX'], 'aXc'],
  [['\b\b\ba'], 'a'],
  [['😀😀\ra'], 'a😀'],
  [['\u001b[31mred\u001b[0m \u001b]0;title\u0007plain\u0007'], 'red plain'],
  [['a\u001b[3', '1mb'], 'ab'],
  [['x'.repeat(20000)], 'x'.repeat(16385) + '\n' + 'x'.repeat(20000 - 16385)],
]) {
  const together = new Screen();
  const apart = new Screen();
  for (const p of parts) {
    together.add(p);
    apart.add(p);
    apart.flush();
  }
  together.flush();
  assert.equal(together.toString(), want);
  assert.equal(apart.toString(), want);
}

// A program that writes while the page is not drawn: what waits stays small, its beginning and end are shown, with a note between.
const fast = new Screen();
fast.add('begin\n');
for (let i = 0; i < 20000; i++) {
  fast.add('\r' + 'y'.repeat(1000));
  assert.ok(fast.head.length + fast.tail.length < 200000, 'too much output waits');
}
fast.add('\nend');
fast.flush();
const text = fast.toString();
assert.match(text, /\n… \d{8} characters of fast output are left out …\n/);
assert.ok(text.startsWith('begin') && text.endsWith('\nend') && text.length < 200000);

// And one that writes for long, drawn or not: the text stays small.
for (let i = 0; i < 100; i++) {
  fast.add('z'.repeat(9999) + '\n');
  fast.flush();
}
assert.ok(fast.toString().length <= 200000 + 16384);
