// Writes objects as YAML, and shows the difference of two texts.

const plain = /^[A-Za-z_/][A-Za-z0-9_./@=+ -]*$/;
const looksOther = /^(true|false|yes|no|on|off|null|y|n|~)$/i;

// scalar writes a string so that YAML reads the same string again: on lines of its own if it has several, unless indent is null.
function scalar(s, indent) {
  if (s === '') return '""';
  if (plain.test(s) && !looksOther.test(s) && !/^\.?[0-9.]+(e[0-9]+)?$/i.test(s) && !s.endsWith(' ') && !s.includes(' #')) return s;
  if (indent !== null && s.includes('\n') && /^[\t\n\x20-\x7e\u00a0-\u1fff\u2030-\ud7ff]*$/.test(s) && !/^[ \t\n]/.test(s) && !/[ \t]\n/.test(s) && !/[ \t]$/.test(s)) {
    const keep = s.endsWith('\n\n') || s === '\n' ? '+' : s.endsWith('\n') ? '' : '-';
    const body = s.endsWith('\n') && keep === '' ? s.slice(0, -1) : keep === '+' ? s.slice(0, -1) : s;
    return '|' + keep + '\n' + body.split('\n').map((l) => (l ? indent + l : '')).join('\n');
  }
  // JSON strings are YAML strings. What JSON leaves bare and YAML does not take is escaped.
  return JSON.stringify(s).replace(/[\u007f-\u009f\u2028\u2029\ufeff\ufffe\uffff]/g, (c) => '\\u' + c.charCodeAt(0).toString(16).padStart(4, '0'));
}

function write(v, indent, out, lead) {
  const inner = indent + '  ';
  if (Array.isArray(v)) {
    if (!v.length) { out.push(lead + ' []'); return; }
    if (lead !== null) out.push(lead);
    for (const x of v) {
      if (x !== null && typeof x === 'object' && (Array.isArray(x) ? x.length : Object.keys(x).length)) {
        const sub = [];
        write(x, inner, sub, null);
        sub[0] = indent + '- ' + sub[0].slice(inner.length);
        for (const line of sub) out.push(line); // as arguments a long list would be too many
      } else {
        out.push(indent + '- ' + leaf(x, inner));
      }
    }
    return;
  }
  const keys = Object.keys(v);
  if (!keys.length) { out.push(lead + ' {}'); return; }
  if (lead !== null) out.push(lead);
  for (const k of keys) {
    const x = v[k];
    const name = indent + scalar(k, null) + ':';
    if (x !== null && typeof x === 'object') write(x, Array.isArray(x) ? indent : inner, out, name);
    else out.push(name + ' ' + leaf(x, inner));
  }
}

function leaf(x, indent) {
  if (typeof x === 'string') return scalar(x, indent);
  if (Array.isArray(x)) return '[]';
  if (x !== null && typeof x === 'object') return '{}';
  return JSON.stringify(x);
}

// toYAML writes an object. Keys stand as the server has sent them, apiVersion and kind first.
export function toYAML(o) {
  if (o === null || typeof o !== 'object') return leaf(o, '') + '\n';
  const { apiVersion, kind, ...rest } = o;
  const ordered = Array.isArray(o) ? o : { ...(apiVersion !== undefined && { apiVersion }), ...(kind !== undefined && { kind }), ...rest };
  const out = [];
  write(ordered, '', out, null);
  return out.join('\n') + '\n';
}

const maxLines = 4000;

// diff compares two texts by lines and returns [mark, line] pairs, where the mark is ' ', '-' or '+'.
export function diff(a, b) {
  const x = a.split('\n');
  const y = b.split('\n');
  let from = 0;
  while (from < x.length && from < y.length && x[from] === y[from]) from++;
  let endX = x.length;
  let endY = y.length;
  while (endX > from && endY > from && x[endX - 1] === y[endY - 1]) { endX--; endY--; }
  const p = x.slice(from, endX);
  const q = y.slice(from, endY);
  let middle;
  if (p.length > maxLines || q.length > maxLines || p.length * q.length > 4e6) {
    middle = [...p.map((l) => ['-', l]), ...q.map((l) => ['+', l])];
  } else {
    // the longest common subsequence
    const w = q.length + 1;
    const table = new Uint16Array((p.length + 1) * w);
    for (let i = p.length - 1; i >= 0; i--) {
      for (let j = q.length - 1; j >= 0; j--) table[i * w + j] = p[i] === q[j] ? table[(i + 1) * w + j + 1] + 1 : Math.max(table[(i + 1) * w + j], table[i * w + j + 1]);
    }
    middle = [];
    let i = 0;
    let j = 0;
    while (i < p.length || j < q.length) {
      if (i < p.length && j < q.length && p[i] === q[j]) { middle.push([' ', p[i]]); i++; j++; }
      else if (j >= q.length || (i < p.length && table[(i + 1) * w + j] >= table[i * w + j + 1])) middle.push(['-', p[i++]]);
      else middle.push(['+', q[j++]]);
    }
  }
  return [...x.slice(0, from).map((l) => [' ', l]), ...middle, ...x.slice(endX).map((l) => [' ', l])];
}

// hunks leaves out what is the same, except a few lines around each change; null stands for lines that were left out.
export function hunks(lines, around = 3) {
  const keep = new Uint8Array(lines.length);
  lines.forEach(([m], i) => { if (m !== ' ') keep.fill(1, Math.max(0, i - around), i + around + 1); });
  const out = [];
  lines.forEach((l, i) => { if (keep[i]) out.push(l); else if (out.length === 0 || out[out.length - 1] !== null) out.push(null); });
  return out;
}
