// Writes output of programs to the terminal of the page and looks at the screen that it becomes; what programs must not be able to do;
// random bytes; and what keys send.

import assert from 'node:assert/strict';
import { load, randomNumbers } from './module.mjs';

const { Terminal, Output, foreground, background, BOLD, INVERSE, UNDERLINE, ITALIC } = await load('terminal.js');
const { bytesOf, pasted } = await load('keys.js');
const E = '\u001b';
const bytes = (s) => new TextEncoder().encode(s);

// screenOf writes to a terminal, as a whole and byte by byte, which must come to the same.
function screenOf(text, columns = 10, rows = 4) {
  const whole = new Terminal(columns, rows);
  whole.write(bytes(text));
  const parts = new Terminal(columns, rows);
  for (const b of bytes(text)) parts.write(new Uint8Array([b]));
  assert.deepEqual(picture(parts), picture(whole), 'in parts: ' + JSON.stringify(text));
  return whole;
}
const picture = (t) => ({ lines: t.lines().map((r) => r.runs()), x: t.x, y: t.y, modes: t.modes });

// Each case: what is written, and the text of the screen with what has left it above.
for (const [text, want] of [
  ['one\r\ntwo', 'one\ntwo'],
  ['loading 1\rdone', 'doneing 1'],
  ['abc\b\bX', 'aXc'],
  ['\b\b\ba', 'a'],
  ['a\tb', 'a       b'],
  ['0123456789ab', '0123456789\nab'], // lines are wrapped
  ['0123456789\r\nab', '0123456789\nab'], // and not too early
  [`${E}[?7l0123456789ab`, '012345678b'],
  ['1\r\n2\r\n3\r\n4\r\n5\r\n6', '1\n2\n3\n4\n5\n6'],
  [`abc${E}[1;2HX`, 'aXc'],
  [`abc${E}[2AX${E}[2BY`, 'abcX\n\n    Y'],
  [`abc${E}[2DX${E}[CY`, 'aXcY'],
  [`abc${E}[4GX${E}[2dY`, 'abcX\n    Y'],
  [`abc${E}[EX${E}[FY`, 'Ybc\nX'],
  [`${E}[99;99HX${E}[HY`, 'Y\n\n\n         X'],
  [`abcdef${E}[3D${E}[K`, 'abc'],
  [`abcdef${E}[3D${E}[1KX`, '   Xef'],
  [`abcdef${E}[2Kx`, '      x'],
  [`a\r\nb\r\nc${E}[2;1H${E}[J`, 'a'],
  [`a\r\nb\r\nc${E}[2;1H${E}[1J`, '\n\nc'],
  [`a\r\nb\r\nc${E}[2Jx`, '\n\n x'],
  [`1\r\n2\r\n3\r\n4\r\n5${E}[3J`, '2\n3\n4\n5'],
  [`abcdef${E}[1;2H${E}[2P`, 'adef'],
  [`abcdef${E}[1;2H${E}[2@X`, 'aX bcdef'],
  [`abcdef${E}[1;2H${E}[2X`, 'a  def'],
  [`abc${E}[1;1H${E}[4hX${E}[4lY`, 'XYbc'],
  [`1\r\n2\r\n3${E}[2;1H${E}[Lx`, '1\nx\n2\n3'],
  [`1\r\n2\r\n3${E}[1;1H${E}[M`, '2\n3'],
  [`1\r\n2\r\n3\r\n4${E}[2;3r${E}[3;1H\nx`, '1\n3\nx\n4'], // a region scrolls alone
  [`1\r\n2\r\n3\r\n4${E}[2;3r${E}[2;1H${E}Mx`, '1\nx\n2\n4'],
  [`1\r\n2\r\n3\r\n4${E}[S`, '1\n2\n3\n4'],
  [`1\r\n2${E}[T`, '\n1\n2'],
  [`${E}[2;4r${E}[?6h${E}[1;1Hx${E}[?6l${E}[1;1Hy`, 'y\nx'],
  [`ab${E}7cd${E}8X`, 'abXd'],
  [`ab${E}[scd${E}[uX`, 'abXd'],
  [`x${E}[4b`, 'xxxxx'],
  [`${E}(0lqk${E}(Bq`, '┌─┐q'],
  [`shell${E}[?1049h${E}[Hvi draws${E}[?1049lX`, 'shellX'],
  [`shell${E}[?47hvi${E}[?47lX`, 'shellX'],
  [`a${E}cb`, 'b'],
  ['日本語', '日本語'],
  ['日本語日本語', '日本語日本\n語'],
  [`日本${E}[1;2HX`, ' X本'], // half of a wide character is no character
  [`日本${E}[1;3HX`, '日X'],
  ['e\u0301a', 'e\u0301a'],
  ['😀!', '😀!'],
  ['a\u202eb\u200fc\u0000d\u007fe\u009bf', 'abcdef'], // marks of direction and controls are not drawn
  [`a${E}[31;1mb${E}[0mc`, 'abc'],
]) assert.equal(screenOf(text).toString(), want, JSON.stringify(text));

// Colours become one of sixteen.
for (const [codes, front, back, flags] of [
  ['31', 2, 0, 0], ['1;32', 3, 0, BOLD], ['97', 16, 0, 0], ['41', 0, 2, 0], ['104', 0, 13, 0], ['7', 0, 0, INVERSE], ['31;39', 0, 0, 0], ['1;4;22', 0, 0, UNDERLINE], ['38;5;9', 10, 0, 0], ['38;5;196', 10, 0, 0],
  ['38;5;232', 1, 0, 0], ['48;5;231', 0, 16, 0], ['38;2;0;128;0', 3, 0, 0], ['38;2;0;128;0;1', 3, 0, BOLD], ['38:2::255:0:0', 10, 0, 0], ['38:5:21;3', 13, 0, ITALIC], ['4:3', 0, 0, UNDERLINE], ['4:0', 0, 0, 0],
  ['38;5', 1, 0, 0], ['38', 0, 0, 0], ['999', 0, 0, 0], ['', 0, 0, 0],
]) {
  const { attrs } = screenOf(`${E}[${codes}mx`).screen[0];
  assert.deepEqual([foreground(attrs[0]), background(attrs[0]), attrs[0] >> 10 << 10], [front, back, flags], codes);
}

// What must do nothing at all: nothing is drawn and nothing answered.
const nothing = [
  `${E}]0;title\u0007`, `${E}]2;title${E}\\`, `${E}]52;c;ZXZpbA==\u0007`, `${E}]52;c;?\u0007`, `${E}]4;1;?\u0007`, `${E}]10;?${E}\\`, `${E}]8;;https:x${E}\\${E}]8;;${E}\\`, `${E}]1337;File=:AAAA\u0007`,
  `${E}P$q"p${E}\\`, `${E}P+q544e${E}\\`, `${E}_text${E}\\`, `${E}^text${E}\\`, `${E}Xtext${E}\\`, `${E}[c`, `${E}[>c`, `${E}[=c`, `${E}[0c`, `${E}Z`, `${E}[5n`, `${E}[?6n`, `${E}[?15n`, `${E}[x`, `${E}[21t`, `${E}[18t`, `${E}[14t`,
  `${E}[?1$p`, `${E}[>q`, `${E}[?u`, '\u0005', `${E}[?1000h`, `${E}[?1006h`, `${E}[?9999h`, `${E}[1;2;3;4;5 q`, `${E}[!!!x`, `${E}[?`, `${E}[9999999999999999999;9999999999z`, `${E}[3;3i`, `${E}[<0;1;1M`,
];
for (const text of nothing) {
  const answers = [];
  const t = new Terminal(10, 4, { answer: (s) => answers.push(s) });
  t.write(`a${text}${E}[1;2Hb`.replace(`${E}[?${E}`, E));
  assert.equal(t.toString(), 'ab', JSON.stringify(text));
  assert.deepEqual(answers, [], JSON.stringify(text));
}

// The position of the cursor is the one answer, and not as often as a program likes.
{
  const answers = [];
  const t = new Terminal(10, 4, { answer: (s) => answers.push(s) });
  t.write(`${E}[999;999H${E}[6n`);
  assert.deepEqual(answers, [`${E}[4;10R`]);
  t.write(`${E}[6n`.repeat(1000));
  assert.ok(answers.length <= 10);
}

// A string that does not end is not kept, and the text comes back.
{
  const t = new Terminal(10, 4);
  t.write(`${E}]0;` + 'x'.repeat(100000) + '\r\nback');
  assert.ok(t.toString().endsWith('back'));
}

// What has left the screen is bounded, and so is the size.
{
  const t = new Terminal(1e9, 1e9);
  assert.ok(t.columns <= 400 && t.rows <= 150);
  for (let i = 0; i < 50; i++) t.write('line\r\n'.repeat(1000));
  assert.ok(t.history.length <= 2000);
  t.write(`${E}[9999S`.repeat(1000));
  assert.ok(t.history.length <= 2000);
  t.write('e' + '\u0301'.repeat(10000));
  assert.ok(t.screen[t.y].toString().length < 10);
}

// A smaller and a larger window.
{
  const t = new Terminal(10, 4);
  t.write('1\r\n2\r\n3\r\n4 is last');
  t.resize(4, 2);
  assert.equal(t.toString(), '1\n2\n3\n4 is');
  assert.deepEqual([t.x, t.y], [3, 1]);
  t.resize(12, 5);
  t.write('\r\n5');
  assert.equal(t.toString(), '1\n2\n3\n4 is\n5');
  t.write(`${E}[?1049hwhole`);
  t.resize(6, 3);
  t.write(`${E}[?1049l!`);
  assert.equal(t.toString(), '1\n2\n3\n4 is\n5!');
}

// Those who listen get the lines of output, not the pictures of programs that use the whole screen.
{
  const lines = [];
  const t = new Terminal(20, 4, { line: (s) => lines.push(s) });
  t.write(`one\r\n${E}[31mtwo${E}[0m\r\n${E}[?1049hpicture\r\nmore\r\n${E}[?1049lthree\r\n`);
  assert.deepEqual(lines, ['one', 'two', 'three']);
}

// Random bytes, with many that begin or end sequences: the screen stays a screen.
const random = randomNumbers(42);
const pieces = [E, `${E}[`, `${E}[?`, `${E}]`, `${E}P`, `${E}(0`, ';', ':', '?', '!', ' ', '\u0007', '\\', '\r', '\n', '\b', '\t', '\u000e', '\u0018', '日', '😀', '\u0301', '\u202e', '\u009b', ...'ABCDEFGHIJKLMPSTXZ@`abdefhlmnqrsux', '0', '1', '4', '6', '7',
  '25', '47', '1049', '2004', '9999', 'text', '\ufffd'];
for (let run = 0; run < 400; run++) {
  const answers = [];
  const t = new Terminal(1 + random(30), 1 + random(12), { answer: (s) => answers.push(s) });
  for (let i = 0; i < 60; i++) {
    const data = random(4) === 0 ? Uint8Array.from({ length: random(40) }, () => random(256)) : bytes(Array.from({ length: random(12) }, () => pieces[random(pieces.length)]).join(''));
    t.write(data);
    if (random(20) === 0) t.resize(random(40), random(15));
    assert.ok(t.x >= 0 && t.x < t.columns && t.y >= 0 && t.y < t.rows, `cursor at ${t.x}, ${t.y}`);
    assert.ok(t.top >= 0 && t.top < t.bottom && t.bottom < t.rows, `region ${t.top} to ${t.bottom}`);
    for (const screen of [t.screen, ...(t.other ? [t.other.screen] : [])]) {
      assert.equal(screen.length, t.rows);
      for (const row of screen) {
        assert.equal(row.columns, t.columns);
        if (!row.chars) continue;
        assert.ok(row.chars.length === t.columns && row.attrs.length === t.columns);
        row.chars.forEach((c, x) => {
          assert.equal(typeof c, 'string');
          assert.ok(c !== '' || (x > 0 && row.chars[x - 1] !== ''), 'half of a character');
          assert.ok(!/[\u0000-\u001f\u007f-\u009f\u202a-\u202e]/.test(c) && c.length < 8, JSON.stringify(c));
        });
      }
    }
    assert.ok(t.history.length <= 2000);
    t.lines().forEach((r) => r.runs());
  }
  for (const a of answers) assert.match(a, /^\u001b\[\d+;\d+R$/);
}

// A program that writes faster than the page draws: what waits is bounded, and its end is shown.
{
  const output = new Output();
  for (let i = 0; i < 100; i++) output.add(new Uint8Array(1 << 17).fill(121));
  assert.ok(output.size <= 4 << 20);
  output.add(bytes('\r\nend'));
  const t = new Terminal(80, 24);
  let turns = 0;
  for (let left = true; left; turns++) { let time = 100; left = output.into(t, () => time-- > 0); }
  assert.ok(turns > 10, 'it is read in parts');
  assert.ok(t.toString().endsWith('\nend') && output.size === 0);
  output.add(new Uint8Array(5 << 20));
  output.add(bytes('last'));
  output.into(t, () => true);
  assert.ok(t.toString().endsWith('… 5242880 bytes of fast output are left out …\nlast'));
}

// Keys.
const key = (k, o = {}) => ({ key: k, ctrlKey: false, altKey: false, shiftKey: false, metaKey: false, isComposing: false, getModifierState: (m) => m === 'AltGraph' && Boolean(o.altGraph), ...o });
for (const [event, want] of [
  [key('a'), 'a'], [key('A', { shiftKey: true }), 'A'], [key('é'), 'é'], [key('😀'), '😀'], [key('Enter'), '\r'], [key('Backspace'), '\u007f'], [key('Tab'), '\t'], [key('Tab', { shiftKey: true }), `${E}[Z`], [key('Escape'), E],
  [key('c', { ctrlKey: true }), '\u0003'], [key('C', { ctrlKey: true, shiftKey: true }), null], [key('L', { ctrlKey: true, shiftKey: true }), null], [key('[', { ctrlKey: true }), E], [key(' ', { ctrlKey: true }), '\0'], [key('5', { ctrlKey: true }), null],
  [key('b', { altKey: true }), `${E}b`], [key('c', { altKey: true, ctrlKey: true }), `${E}\u0003`], [key('@', { altKey: true, ctrlKey: true, altGraph: true }), '@'], [key('Backspace', { altKey: true }), `${E}\u007f`],
  [key('ArrowUp'), `${E}[A`], [key('ArrowLeft', { ctrlKey: true }), `${E}[1;5D`], [key('Home'), `${E}[H`], [key('Delete'), `${E}[3~`], [key('PageDown', { shiftKey: true }), `${E}[6;2~`], [key('F1'), `${E}OP`], [key('F5'), `${E}[15~`],
  [key('F12'), null], [key('Shift', { shiftKey: true }), null], [key('v', { metaKey: true }), null], [key('Dead'), null], [key('a', { isComposing: true }), null], [key('toString'), null],
]) assert.equal(bytesOf(event), want, JSON.stringify(event));
assert.equal(bytesOf(key('ArrowUp'), true), `${E}OA`);
assert.equal(pasted('a\nb\r\nc', false), 'a\rb\rc');
assert.equal(pasted(`x${E}[201~rm\u0003\u009b`, true), `${E}[200~x[201~rm${E}[201~`);
