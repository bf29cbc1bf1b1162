// The rows of a list in their order, and those of them that a search finds. A change costs as much as the rows that it is about, not
// as much as the list is long: ten thousand Pods change many times a second.

// natural writes a text so that < puts numbers in their order: pod-9 before pod-10. The length of a number stands before it.
export function natural(s) {
  return String(s ?? '').toLowerCase().replace(/\d+/g, (d) => {
    const n = d.replace(/^0+(?=\d)/, '');
    return String.fromCharCode(0x30 + Math.min(n.length, 48)) + n;
  });
}

// Rows holds an entry { key, row, sort, text, found, version } of each row: what it is sorted by, the text that is searched, and a number
// that grows when the row changes.
export class Rows {
  // textOf returns the text of a row in which a search looks, in lower case.
  constructor(textOf) {
    this.textOf = textOf;
    this.sortOf = (row, key) => natural(key);
    this.sign = 1;
    this.words = [];
    this.entries = new Map();
    this.order = []; // all entries
    this.shown = []; // those that are found
  }

  compare(a, b) {
    if (a.sort !== b.sort) return a.sort < b.sort ? -this.sign : this.sign;
    return a.key < b.key ? -1 : 1;
  }

  isFound(e) { return this.words.every((w) => e.text.includes(w)); }

  // sortBy sorts by what a function returns of a row and its key: a number or a text of natural.
  sortBy(sortOf, descending) {
    this.sortOf = sortOf;
    this.sign = descending ? -1 : 1;
    for (const e of this.order) e.sort = sortOf(e.row, e.key);
    this.order.sort((a, b) => this.compare(a, b));
    this.filter();
  }

  // search finds the rows that contain every word. A search that got longer looks only at what was found before.
  search(words) {
    const narrower = this.words.every((w) => words.some((x) => x.includes(w)));
    this.words = words;
    for (const e of narrower ? this.shown : this.order) e.found = this.isFound(e);
    this.filter();
  }

  filter() { this.shown = this.words.length ? this.order.filter((e) => e.found) : this.order; }

  // reset takes all rows of a map anew.
  reset(items) {
    this.entries.clear();
    this.order = this.shown = [];
    this.apply(items.keys(), items);
  }

  // apply takes the rows of some keys anew from a map; those that it does not have are removed.
  apply(keys, items) {
    const added = [];
    let removed = false;
    let refound = false;
    for (const key of keys) {
      const old = this.entries.get(key);
      const row = items.get(key);
      if (!row && !old) continue;
      const sort = row && this.sortOf(row, key);
      if (old && row && old.sort === sort) { // it stays where it is
        if (old.row === row) continue;
        Object.assign(old, { row, text: this.textOf(row), version: old.version + 1 });
        const found = this.isFound(old);
        refound ||= found !== old.found;
        old.found = found;
        continue;
      }
      if (old) { old.gone = removed = true; this.entries.delete(key); }
      if (!row) continue;
      const e = { key, row, sort, text: this.textOf(row), found: true, version: 0, gone: false };
      e.found = this.isFound(e);
      this.entries.set(key, e);
      added.push(e);
    }
    if (removed) this.order = this.order.filter((e) => !e.gone);
    if (added.length) this.order = this.merge(added);
    if (removed || added.length || refound) this.filter();
  }

  // merge puts entries at their places among the sorted ones.
  merge(added) {
    added.sort((a, b) => this.compare(a, b));
    const out = [];
    let from = 0;
    for (const e of added) {
      let low = from;
      let high = this.order.length;
      while (low < high) {
        const mid = (low + high) >> 1;
        if (this.compare(this.order[mid], e) < 0) low = mid + 1;
        else high = mid;
      }
      while (from < low) out.push(this.order[from++]);
      out.push(e);
    }
    while (from < this.order.length) out.push(this.order[from++]);
    return out;
  }
}
