// A terminal without a display: it reads what programs write and keeps the screen that they draw. Programs in containers are not trusted:
// their output can draw on this screen and do nothing else. Sequences that would set a title, fill the clipboard, change colours of the page
// or ask for answers are read and forgotten. The one answer is where the cursor is, which shells and editors need.

const HISTORY = 2000; // lines above the screen that are kept
const MAX_COLUMNS = 400;
const MAX_ROWS = 150;
const MAX_PARAMS = 16;
const MAX_NUMBER = 9999;
const MAX_STRING = 4096; // characters of a string sequence; what comes then is text again
const MAX_MARKS = 4; // combining marks of one cell
const MAX_ANSWERS = 8; // to one piece of output
const MAX_WAITING = 4 << 20; // bytes of output that wait to be drawn; of more, the oldest are left out
const SLICE = 1024; // bytes that are read at a time

// The attributes of a cell: 5 bits each for the colours, 0 for none and 1 to 16 for one of the palette, then flags.
export const BOLD = 1 << 10;
export const DIM = 1 << 11;
export const ITALIC = 1 << 12;
export const UNDERLINE = 1 << 13;
export const INVERSE = 1 << 14;
export const HIDDEN = 1 << 15;
export const STRIKE = 1 << 16;
const flagOf = { 1: BOLD, 2: DIM, 3: ITALIC, 4: UNDERLINE, 7: INVERSE, 8: HIDDEN, 9: STRIKE };
const COLOURS = 0x3ff;
export const foreground = (a) => a & 31;
export const background = (a) => (a >> 5) & 31;

// nearest returns which of the sixteen colours a colour is drawn in: the page has a readable one of each for its themes.
function nearest(r, g, b) {
  const top = Math.max(r, g, b);
  const low = Math.min(r, g, b);
  const bright = top > 190 ? 8 : 0;
  if (top - low < 40) return top < 60 ? 0 : top < 130 ? 8 : top < 200 ? 7 : 15;
  const mid = (top + low) / 2;
  return bright + (r > mid ? 1 : 0) + (g > mid ? 2 : 0) + (b > mid ? 4 : 0);
}

// ofPalette does the same for a colour of the palette of 256.
function ofPalette(n) {
  if (n < 16) return n;
  if (n >= 232) { const v = 8 + (n - 232) * 10; return nearest(v, v, v); }
  const level = (i) => (i ? 55 + i * 40 : 0);
  return nearest(level(Math.floor((n - 16) / 36)), level(Math.floor((n - 16) / 6) % 6), level((n - 16) % 6));
}

const wide = [0x1100, 0x115f, 0x231a, 0x231b, 0x23e9, 0x23ec, 0x2614, 0x2615, 0x26a1, 0x26a1, 0x2705, 0x2705, 0x2728, 0x2728, 0x274c, 0x274c, 0x2795, 0x2797, 0x2b50, 0x2b50, 0x2e80, 0x303e, 0x3041, 0xa4cf,
  0xac00, 0xd7a3, 0xf900, 0xfaff, 0xfe30, 0xfe6f, 0xff00, 0xff60, 0xffe0, 0xffe6, 0x1f300, 0x1f64f, 0x1f680, 0x1f6ff, 0x1f7e0, 0x1f7eb, 0x1f900, 0x1f9ff, 0x1fa70, 0x1faff, 0x20000, 0x3fffd];

// widthOf returns how many cells a character takes: none for marks that belong to the one before, two for CJK and most emoji, and -1 for
// what is not drawn, such as marks that change the direction of writing.
export function widthOf(c) {
  const n = c.codePointAt(0);
  if (n < 0x300) return n < 0x20 || (n >= 0x7f && n < 0xa0) || n === 0xad ? -1 : 1;
  if (/\p{M}/u.test(c)) return 0;
  if (/[\p{C}\p{Zl}\p{Zp}]/u.test(c) && !/\p{Co}/u.test(c)) return -1;
  for (let i = 0; i < wide.length; i += 2) if (n >= wide[i] && n <= wide[i + 1]) return 2;
  return 1;
}

// The line drawing characters of the DEC charset, for the letters from "`" to "~".
const drawing = [...'◆▒␉␌␍␊°±␤␋┘┐┌└┼⎺⎻─⎼⎽├┤┴┬│≤≥π≠£·'];

// Row is a line of cells. Its version grows when it changes. A row that is blank has no cells: programs erase more than they write.
class Row {
  constructor(columns, attr = 0) {
    Object.assign(this, { columns, blank: attr, chars: null, attrs: null, version: 0 });
  }

  // cells returns the row with cells, to be changed.
  cells() {
    this.version++;
    if (!this.chars) {
      this.chars = new Array(this.columns).fill(' '); // '' is the second half of a wide character
      this.attrs = new Array(this.columns).fill(this.blank);
    }
    return this;
  }

  clear(from, to, attr) {
    if (from <= 0 && to >= this.columns) { Object.assign(this, { chars: null, attrs: null, blank: attr, version: this.version + 1 }); return; }
    const { chars, attrs } = this.cells();
    if (chars[from] === '' && from > 0) chars[from - 1] = ' ';
    if (chars[to] === '') chars[to] = ' ';
    chars.fill(' ', from, to);
    attrs.fill(attr, from, to);
  }

  resize(columns) {
    this.columns = columns;
    this.version++;
    if (!this.chars) return;
    this.chars.length = this.attrs.length = Math.min(this.chars.length, columns);
    while (this.chars.length < columns) { this.chars.push(' '); this.attrs.push(0); }
  }

  toString() { return this.chars ? this.chars.join('').trimEnd() : ''; }

  // runs returns the row as texts of the same attributes; blanks at its end are left out.
  runs() {
    if (!this.chars) return background(this.blank) ? [{ attr: this.blank, text: ' '.repeat(this.columns) }] : [];
    let end = this.chars.length;
    while (end > 0 && this.chars[end - 1] === ' ' && !(this.attrs[end - 1] & (~BOLD & ~DIM & ~ITALIC & ~31))) end--;
    const out = [];
    for (let i = 0; i < end; i++) {
      if (out.length && out[out.length - 1].attr === this.attrs[i]) out[out.length - 1].text += this.chars[i];
      else out.push({ attr: this.attrs[i], text: this.chars[i] });
    }
    return out;
  }
}

// Terminal is a screen with a cursor. It calls answer with the text that the program reads when it asks for the position of the cursor, and
// line with each line of output that has ended, for those who listen instead of looking.
export class Terminal {
  constructor(columns, rows, { answer = () => {}, line = () => {} } = {}) {
    Object.assign(this, { answer, line, columns: 0, rows: 0, history: [] });
    this.decoder = new TextDecoder();
    this.reset();
    this.resize(columns, rows);
  }

  reset() {
    Object.assign(this, { x: 0, y: 0, wrap: false, attr: 0, saved: null, other: null, top: 0, bottom: this.rows - 1, last: '', charsets: ['B', 'B'], shift: 0,
      modes: { autowrap: true, insert: false, origin: false, cursor: true, appCursor: false, bracketed: false } });
    this.screen = Array.from({ length: this.rows }, () => new Row(this.columns));
    this.state = this.ground;
    this.answers = 0;
  }

  resize(columns, rows) {
    columns = Math.max(2, Math.min(MAX_COLUMNS, columns | 0));
    rows = Math.max(2, Math.min(MAX_ROWS, rows | 0));
    if (columns === this.columns && rows === this.rows) return;
    for (const [screen, keep, y] of [[this.screen, !this.other, this.y], ...(this.other ? [[this.other.screen, true, this.other.y]] : [])]) {
      const cut = Math.max(0, Math.min(screen.length - rows, y - rows + 1)); // what is above the cursor and does not fit any more goes first
      const gone = screen.splice(0, cut);
      if (keep) this.keep(gone);
      if (screen === this.screen) this.y -= cut;
      else this.other.y -= cut;
      screen.length = Math.min(screen.length, rows);
      for (const row of screen) row.resize(columns);
      while (screen.length < rows) screen.push(new Row(columns));
    }
    Object.assign(this, { columns, rows, top: 0, bottom: rows - 1, wrap: false });
    this.move(this.x, this.y);
  }

  keep(rows) {
    this.history.push(...rows);
    while (this.history.length > HISTORY) this.history.shift(); // unlike splice, it does not move all the others
  }

  // lines are what there is to see: the screen, and what has left it above unless a program uses the whole screen.
  lines() { return this.other ? this.screen : [...this.history, ...this.screen]; }

  get isWhole() { return this.other !== null; }

  toString() { return this.lines().map(String).join('\n').trimEnd(); }

  // write reads output: bytes, or a text.
  write(data) {
    const s = typeof data === 'string' ? data : this.decoder.decode(data, { stream: true });
    this.answers = 0;
    for (const c of s) {
      const n = c.codePointAt(0);
      if (n === 0x18 || n === 0x1a) this.state = this.ground; // these two end every sequence
      else if (n === 0x1b && this.state !== this.string) this.escape();
      else this.state(c, n);
    }
  }

  // --- the parser: each state reads one character ---

  ground(c, n) {
    if (n >= 0x20) this.draw(c, n);
    else this.control(n);
  }

  escape() { this.between = ''; this.state = this.escaped; }

  escaped(c, n) {
    if (n < 0x20) { this.control(n); return; }
    if (n < 0x30) { this.between = (this.between + c).slice(0, 4); return; }
    this.state = this.ground;
    if (this.between) {
      if (this.between === '(' || this.between === ')') this.charsets[this.between === '(' ? 0 : 1] = c;
      return;
    }
    if (c === '[') { Object.assign(this, { state: this.sequence, params: [], colons: new Set(), number: -1, prefix: '', between: '', bad: false }); return; }
    if (c === ']' || c === 'P' || c === 'X' || c === '^' || c === '_') { this.length = 0; this.ending = false; this.state = this.string; return; }
    if (c === '7') this.save();
    if (c === '8') this.restore();
    if (c === 'D') this.index();
    if (c === 'E') { this.move(0, this.y); this.index(); }
    if (c === 'M') this.reverseIndex();
    if (c === 'c') { this.history = []; this.reset(); }
  }

  // string reads a sequence with a text in it, such as a title, and forgets it.
  string(c, n) {
    const wasEscape = this.ending;
    this.ending = n === 0x1b;
    if (n === 0x07 || (wasEscape && c === '\\') || ++this.length > MAX_STRING) { this.state = this.ground; return; }
    if (wasEscape && n !== 0x1b) { this.escape(); this.escaped(c, n); }
  }

  sequence(c, n) {
    if (n < 0x20) { this.control(n); return; }
    if (n >= 0x30 && n <= 0x39) { this.number = Math.min(MAX_NUMBER, Math.max(0, this.number) * 10 + n - 0x30); return; }
    if (c === ';' || c === ':') {
      if (c === ':') this.colons.add(this.params.length);
      if (this.params.length < MAX_PARAMS) this.params.push(this.number);
      this.number = -1;
      return;
    }
    if (n >= 0x3c && n <= 0x3f) { this.bad ||= this.params.length > 0 || this.number >= 0 || this.prefix !== ''; this.prefix = c; return; }
    if (n < 0x30) { this.between = (this.between + c).slice(0, 4); return; }
    this.state = this.ground;
    if (this.params.length < MAX_PARAMS) this.params.push(this.number);
    if (this.bad || n > 0x7e) return;
    if (this.prefix === '?' && !this.between && (c === 'h' || c === 'l')) { for (const p of this.params) this.setMode(p, c === 'h'); return; }
    if (this.prefix === '' && this.between === '!' && c === 'p') { this.softReset(); return; }
    if (this.prefix === '' && !this.between) this.command(c, (i, or = 1) => (this.params[i] > 0 ? this.params[i] : or));
  }

  control(n) {
    if (n === 8) { this.wrap = false; if (this.x > 0) this.x--; }
    else if (n === 9) { this.wrap = false; this.x = Math.min(this.columns - 1, (this.x | 7) + 1); }
    else if (n >= 10 && n <= 12) this.index();
    else if (n === 13) { this.wrap = false; this.x = 0; }
    else if (n === 14 || n === 15) this.shift = 15 - n;
  }

  // command does what a control sequence says; p returns a parameter, or 1 or another number in place of one that is missing or 0.
  command(c, p) {
    const { columns, rows } = this;
    const first = this.modes.origin ? this.top : 0;
    const row = this.screen[this.y];
    const blank = this.attr & COLOURS & ~31; // what is erased keeps the background
    switch (c) {
      case 'A': this.move(this.x, Math.max(this.y >= this.top ? this.top : 0, this.y - p(0))); break;
      case 'B': case 'e': this.move(this.x, Math.min(this.y <= this.bottom ? this.bottom : rows - 1, this.y + p(0))); break;
      case 'C': case 'a': this.move(this.x + p(0), this.y); break;
      case 'D': this.move(this.x - p(0), this.y); break;
      case 'E': this.move(0, this.y + p(0)); break;
      case 'F': this.move(0, this.y - p(0)); break;
      case 'G': case '`': this.move(p(0) - 1, this.y); break;
      case 'd': this.move(this.x, first + p(0) - 1); break;
      case 'H': case 'f': this.move(p(1) - 1, first + p(0) - 1); break;
      case 'I': for (let i = Math.min(p(0), columns); i > 0; i--) this.control(9); break;
      case 'Z': this.move(Math.max(0, (Math.ceil(this.x / 8) - p(0)) * 8), this.y); break;
      case 'J': this.eraseScreen(p(0, 0), blank); break;
      case 'K': row.clear([this.x, 0, 0][p(0, 0)] ?? 0, [columns, this.x + 1, columns][p(0, 0)] ?? 0, blank); this.wrap = false; break;
      case 'L': if (this.inRegion()) this.scroll(this.y, this.bottom, -p(0)); this.x = 0; break;
      case 'M': if (this.inRegion()) this.scroll(this.y, this.bottom, p(0)); this.x = 0; break;
      case 'S': this.scroll(this.top, this.bottom, p(0), true); break;
      case 'T': if (this.params.length === 1) this.scroll(this.top, this.bottom, -p(0)); break;
      case '@': this.insertCells(row, p(0), blank); break;
      case 'P': {
        const n = Math.min(p(0), columns - this.x);
        row.clear(this.x, this.x + n, blank);
        const { chars, attrs } = row.cells();
        chars.splice(this.x, n);
        attrs.splice(this.x, n);
        while (chars.length < columns) { chars.push(' '); attrs.push(blank); }
        break;
      }
      case 'X': row.clear(this.x, Math.min(columns, this.x + p(0)), blank); break;
      case 'b': if (this.last) for (let i = Math.min(p(0), columns); i > 0; i--) this.draw(this.last, this.last.codePointAt(0)); break;
      case 'r': {
        const [top, bottom] = [p(0) - 1, Math.min(rows, p(1, rows)) - 1];
        if (top < bottom) { Object.assign(this, { top, bottom }); this.move(0, this.modes.origin ? top : 0); }
        break;
      }
      case 's': this.save(); break;
      case 'u': this.restore(); break;
      case 'm': this.style(); break;
      case 'h': case 'l': if (this.params.includes(4)) this.modes.insert = c === 'h'; break;
      case 'n': if (this.params[0] === 6 && this.answers++ < MAX_ANSWERS) this.answer(`\u001b[${this.y - first + 1};${this.x + 1}R`); break;
    }
  }

  setMode(n, on) {
    if (n === 1) this.modes.appCursor = on;
    if (n === 6) { this.modes.origin = on; this.move(0, on ? this.top : 0); }
    if (n === 7) this.modes.autowrap = on;
    if (n === 25) this.modes.cursor = on;
    if (n === 2004) this.modes.bracketed = on;
    if (n === 1048 || (n === 1049 && on)) on ? this.save() : this.restore();
    if (n === 47 || n === 1047 || n === 1049) this.useOther(on, n === 1049);
  }

  // useOther changes to the screen that programs use as a whole, and back.
  useOther(on, restore) {
    if (on && !this.other) {
      this.other = { screen: this.screen, saved: this.saved, y: this.y, x: this.x };
      this.screen = Array.from({ length: this.rows }, () => new Row(this.columns));
    } else if (!on && this.other) {
      const { screen, saved, x, y } = this.other;
      Object.assign(this, { screen, saved, other: null, top: 0, bottom: this.rows - 1 });
      if (restore) this.restore();
      else this.move(x, y);
    }
  }

  softReset() {
    Object.assign(this, { attr: 0, saved: null, top: 0, bottom: this.rows - 1, charsets: ['B', 'B'], shift: 0 });
    Object.assign(this.modes, { autowrap: true, insert: false, origin: false, cursor: true, appCursor: false });
  }

  // style reads colours and the like.
  style() {
    const list = this.params.map((v) => Math.max(0, v));
    const set = (shift, colour) => { this.attr = (this.attr & ~(31 << shift)) | (colour << shift); };
    for (let i = 0; i < list.length; i++) {
      const v = list[i];
      const parts = []; // numbers behind colons belong to this one
      for (let j = i; this.colons.has(j) && j + 1 < list.length; j++) parts.push(list[j + 1]);
      i += parts.length;
      if (v === 0) this.attr = 0;
      else if (v === 4 && parts[0] === 0) this.attr &= ~UNDERLINE;
      else if (flagOf[v]) this.attr |= flagOf[v];
      else if (v === 21) this.attr |= UNDERLINE;
      else if (v === 22) this.attr &= ~(BOLD | DIM);
      else if (v >= 23 && v <= 29) this.attr &= ~(flagOf[v - 20] || 0);
      else if (v >= 30 && v <= 37) set(0, v - 29);
      else if (v >= 40 && v <= 47) set(5, v - 39);
      else if (v >= 90 && v <= 97) set(0, v - 81);
      else if (v >= 100 && v <= 107) set(5, v - 91);
      else if (v === 39) set(0, 0);
      else if (v === 49) set(5, 0);
      else if (v === 38 || v === 48 || v === 58) {
        let colour = -1;
        const rest = parts.length ? parts : list.slice(i + 1, i + 5);
        const taken = rest[0] === 5 ? 2 : rest[0] === 2 ? 4 : 0;
        if (rest[0] === 5) colour = ofPalette(Math.min(255, rest[1] ?? 0));
        if (rest[0] === 2) colour = nearest(...(parts.length > 4 ? rest.slice(-3) : rest.slice(1, 4)), 0, 0, 0);
        if (!parts.length) i += taken;
        if (colour >= 0 && v !== 58) set(v === 38 ? 0 : 5, colour + 1);
      }
    }
  }

  // --- the screen ---

  move(x, y) {
    this.wrap = false;
    this.x = Math.max(0, Math.min(this.columns - 1, x));
    const [low, high] = this.modes.origin ? [this.top, this.bottom] : [0, this.rows - 1];
    this.y = Math.max(low, Math.min(high, y));
  }

  save() { this.saved = { x: this.x, y: this.y, attr: this.attr, charsets: [...this.charsets], shift: this.shift, origin: this.modes.origin }; }

  restore() {
    const s = this.saved || { x: 0, y: 0, attr: 0, charsets: ['B', 'B'], shift: 0, origin: false };
    this.modes.origin = s.origin;
    Object.assign(this, { attr: s.attr, charsets: [...s.charsets], shift: s.shift });
    this.move(s.x, s.y);
  }

  inRegion() { return this.y >= this.top && this.y <= this.bottom; }

  index() {
    this.wrap = false;
    if (!this.other) this.line(this.screen[this.y].toString());
    if (this.y === this.bottom) this.scroll(this.top, this.bottom, 1, true);
    else if (this.y < this.rows - 1) this.y++;
  }

  reverseIndex() {
    this.wrap = false;
    if (this.y === this.top) this.scroll(this.top, this.bottom, -1);
    else if (this.y > 0) this.y--;
  }

  // scroll moves the lines of a region up, or down if n is negative. What leaves the screen at its top may be kept.
  scroll(top, bottom, n, keep = false) {
    const count = Math.min(Math.abs(n), bottom - top + 1);
    const gone = this.screen.splice(n > 0 ? top : bottom - count + 1, count);
    if (keep && top === 0 && !this.other) this.keep(gone);
    this.screen.splice(n > 0 ? bottom - count + 1 : top, 0, ...Array.from({ length: count }, () => new Row(this.columns, this.attr & COLOURS & ~31)));
  }

  eraseScreen(how, blank) {
    this.wrap = false;
    if (how === 3) { this.history = []; return; }
    const [from, to] = how === 0 ? [this.y + 1, this.rows] : how === 1 ? [0, this.y] : how === 2 ? [0, this.rows] : [0, 0];
    for (let y = from; y < to; y++) this.screen[y].clear(0, this.columns, blank);
    if (how === 0) this.screen[this.y].clear(this.x, this.columns, blank);
    if (how === 1) this.screen[this.y].clear(0, this.x + 1, blank);
  }

  insertCells(row, n, blank) {
    n = Math.min(n, this.columns - this.x);
    const { chars, attrs } = row.cells();
    if (chars[this.x] === '') chars[this.x - 1] = chars[this.x] = ' ';
    chars.splice(this.x, 0, ...new Array(n).fill(' '));
    attrs.splice(this.x, 0, ...new Array(n).fill(blank));
    if (chars[this.columns] === '') chars[this.columns - 1] = ' '; // a wide one that is cut
    chars.length = attrs.length = this.columns;
  }

  draw(c, n) {
    if (n < 0x7f && this.charsets[this.shift] === '0' && n >= 0x60) c = drawing[n - 0x60];
    const width = n < 0x7f ? 1 : widthOf(c);
    if (width < 0) return;
    if (width === 0) { this.mark(c); return; }
    this.last = c;
    if (this.modes.autowrap && (this.wrap || this.x + width > this.columns)) { this.x = 0; this.index(); }
    if (this.x + width > this.columns) this.x = this.columns - width;
    const row = this.screen[this.y];
    if (this.modes.insert) this.insertCells(row, width, 0);
    const { chars, attrs } = row.cells();
    if (chars[this.x] === '') chars[this.x - 1] = ' '; // halves of wide ones
    if (chars[this.x + width] === '') chars[this.x + width] = ' ';
    chars[this.x] = c;
    attrs[this.x] = this.attr;
    if (width === 2) { chars[this.x + 1] = ''; attrs[this.x + 1] = this.attr; }
    this.x += width;
    if (this.x >= this.columns) { this.x = this.columns - 1; this.wrap = true; }
  }

  // mark adds a mark, such as an accent, to the character before the cursor.
  mark(c) {
    const { chars } = this.screen[this.y].cells();
    let x = this.wrap ? this.x : this.x - 1;
    if (chars[x] === '') x--;
    if (x >= 0 && chars[x].length <= 1 + MAX_MARKS) chars[x] += c;
  }
}

// Output is what has come and is not yet on the screen. A program may write faster than a page can draw.
export class Output {
  constructor() { Object.assign(this, { chunks: [], size: 0, dropped: 0 }); }

  add(bytes) {
    this.chunks.push(bytes);
    this.size += bytes.length;
    while (this.size > MAX_WAITING && this.chunks.length > 1) {
      const old = this.chunks.shift();
      this.size -= old.length;
      this.dropped += old.length;
    }
  }

  // into writes to a terminal for as long as there is time, and says whether something is left.
  into(terminal, hasTime) {
    if (this.dropped) {
      terminal.write(`\u0018\r\n… ${this.dropped} bytes of fast output are left out …\r\n`);
      this.dropped = 0;
    }
    while (this.chunks.length && hasTime()) {
      const [bytes] = this.chunks;
      terminal.write(bytes.subarray(0, SLICE));
      this.size -= Math.min(SLICE, bytes.length);
      if (bytes.length > SLICE) this.chunks[0] = bytes.subarray(SLICE);
      else this.chunks.shift();
    }
    return this.chunks.length > 0;
  }
}
