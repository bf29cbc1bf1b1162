// The output of a terminal as text.

const MAX = 200000; // characters that are kept
const LINE = 16384; // characters of a line, which is then broken
const HEAD = 60000; // characters of the output between two frames that are kept of its beginning,
const TAIL = 60000; // and, at least, of its end

// Screen turns the output of a terminal into text: carriage return and backspace work, colours and cursor movements are removed.
// A program may write faster than the page can show, so output is collected with add and becomes text with flush, once a frame.
export class Screen {
  constructor() {
    this.text = '';
    this.line = []; // its characters
    this.at = 0;
    this.rest = ''; // the beginning of a sequence whose end has not come
    this.head = '';
    this.tail = '';
    this.dropped = 0; // characters between head and tail
  }

  // add collects output. Of more than is worth showing it keeps the beginning and the end.
  add(s) {
    if (!this.tail) {
      const room = HEAD - this.head.length;
      this.head += s.slice(0, room);
      s = s.slice(room);
    }
    this.tail += s;
    if (this.tail.length > 2 * TAIL) {
      this.dropped += this.tail.length - TAIL;
      this.tail = this.tail.slice(-TAIL);
    }
  }

  // flush writes what was collected.
  flush() {
    const { head, tail, dropped } = this;
    this.head = this.tail = '';
    this.dropped = 0;
    if (!dropped) { this.write(head + tail); return; }
    this.write(head);
    this.rest = '';
    this.write(`\n… ${dropped} characters of fast output are left out …\n`);
    this.write(tail);
  }

  write(s) {
    s = this.rest + s;
    this.rest = '';
    // CSI, OSC (ends with BEL or ST), and other sequences of two characters
    s = s.replace(/\u001b\[[0-?]*[ -/]*[@-~]|\u001b\][^\u0007\u001b]*(?:\u0007|\u001b\\)|\u001b[PX^_][^\u001b]*\u001b\\|\u001b[@-Z\\^_=>78()#][AB012]?/g, '');
    const cut = s.lastIndexOf('\u001b');
    if (cut >= 0 && s.length - cut < 4096) { this.rest = s.slice(cut); s = s.slice(0, cut); }
    for (const c of s) {
      if (c === '\n') this.endLine();
      else if (c === '\r') this.at = 0;
      else if (c === '\b') this.at = Math.max(0, this.at - 1);
      else if (c === '\u0007') continue;
      else this.line[this.at++] = c;
      if (this.line.length > LINE) this.endLine();
    }
    if (this.text.length > MAX) this.text = this.text.slice(this.text.length - MAX);
  }

  endLine() {
    this.text += this.line.join('') + '\n';
    this.line = [];
    this.at = 0;
  }

  toString() { return this.text + this.line.join(''); }
}
