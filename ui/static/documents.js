// Finds the objects in a text of YAML or JSON: where each document begins, and which object it names. The server reads the documents; only
// what an address needs is read here, and the server refuses a document that names another object than its address.

const MAX_DOCUMENTS = 500;
const MAX_NESTED = 100; // mappings and lists in each other in braces; each level reads the text once

// scalar reads a value on one line. It returns null for what goes on over lines or refers to something else.
function scalar(text) {
  const s = (text || '').trim();
  if (s.startsWith('"')) {
    const m = /^"(?:[^"\\]|\\.)*"/.exec(s);
    try { return m && JSON.parse(m[0]); } catch { return null; }
  }
  if (s.startsWith("'")) {
    const m = /^'((?:[^']|'')*)'/.exec(s);
    return m && m[1].replaceAll("''", "'");
  }
  if (/^[|>&*!{[%@`]/.test(s)) return null;
  return s.replace(/(^|\s)#.*$/, '').trim();
}

// flow reads the keys of a mapping in braces, without those of mappings and lists in it.
function flow(text) {
  let s = text.trim().replace(/^\{/, '').replace(/\}[^}]*$/, '');
  for (let before = '', level = 0; before !== s; level++) { if (level > MAX_NESTED) return {}; before = s; s = s.replace(/\{[^{}]*\}|\[[^[\]]*\]/g, '0'); }
  return Object.fromEntries([...s.matchAll(/(?:^|,)\s*["']?([\w.-]+)["']?\s*:\s*("(?:[^"\\]|\\.)*"|'(?:[^']|'')*'|[^,]*)/g)].map((m) => [m[1], scalar(m[2])]));
}

const indentOf = (line) => line.length - line.trimStart().length;
const isEmpty = (line) => /^\s*(#.*)?$/.test(line);

// keysOf returns the keys of the outermost mapping of some lines, each with the text behind the colon and the lines below it.
function keysOf(lines) {
  const first = lines.find((l) => !isEmpty(l));
  const out = new Map();
  let last = null;
  for (const line of lines) {
    const m = !isEmpty(line) && indentOf(line) === indentOf(first) && /^\s*(["']?)([\w./-]+)\1\s*:(?:\s+(.*))?$/.exec(line);
    if (m) { last = { value: m[3] || '', below: [] }; if (!out.has(m[2])) out.set(m[2], last); } else if (last) last.below.push(line);
  }
  return out;
}

// namesOf returns apiVersion, kind and the names of the object in a document of YAML.
function namesOf(lines) {
  const keys = keysOf(lines);
  const get = (k) => (keys.has(k) ? scalar(keys.get(k).value) : '');
  const meta = keys.get('metadata');
  let inner = {};
  if (meta) {
    const joined = [meta.value, ...meta.below].join(' ').trim();
    inner = joined.startsWith('{') ? flow(joined) : Object.fromEntries([...keysOf(meta.below)].map(([k, v]) => [k, scalar(v.value)]));
  }
  return { apiVersion: get('apiVersion'), kind: get('kind'), name: inner.name, namespace: inner.namespace, generateName: inner.generateName, isList: keys.has('items') && !meta?.below.length && !inner.name };
}

// fromObject returns the same of an object that was JSON.
function fromObject(o) {
  const m = o?.metadata || {};
  return { apiVersion: o?.apiVersion, kind: o?.kind, name: m.name, namespace: m.namespace, generateName: m.generateName };
}

function complete(doc, names) {
  const text = (v) => (typeof v === 'string' ? v : '');
  Object.assign(doc, { apiVersion: text(names.apiVersion), kind: text(names.kind), name: text(names.name), namespace: text(names.namespace), generateName: text(names.generateName) });
  if (names.isList) doc.problem = 'This is a list. Write its objects as documents of their own, with a line “---” between them.';
  else if (!doc.apiVersion || !doc.kind) doc.problem = `The document has no ${doc.kind ? 'apiVersion' : doc.apiVersion ? 'kind' : 'apiVersion and kind'}.`;
  else if (!doc.name && !doc.generateName) doc.problem = 'The object has no name (metadata.name).';
  else if ([doc.name, doc.namespace].some((n) => n === '.' || n === '..')) doc.problem = 'A name cannot be “.” or “..”.'; // they mean something in an address
  return doc;
}

// documentsOf returns the documents of a text: { line, end, text, apiVersion, kind, name, namespace, generateName, problem }. Lines are counted
// from 1; problem says why a document cannot be sent.
export function documentsOf(text) {
  const out = [];
  let lines = [];
  let start = 1;
  const finish = (next) => {
    let skip = 0;
    while (skip < lines.length && isEmpty(lines[skip])) skip++;
    if (skip < lines.length) {
      const doc = { line: start + skip, end: start + lines.length - 1, text: lines.join('\n') + '\n', first: start };
      const body = doc.text.trim();
      let json;
      try { json = body.startsWith('{') ? JSON.parse(body) : undefined; } catch { /* then it is YAML */ }
      if (json === undefined) out.push(complete(doc, body.startsWith('{') ? {} : namesOf(lines)));
      else if (Array.isArray(json.items) && String(json.kind).endsWith('List')) for (const item of json.items) out.push(complete({ ...doc, text: JSON.stringify(item, null, 2) }, fromObject(item)));
      else out.push(complete(doc, fromObject(json)));
    }
    lines = [];
    start = next;
  };
  text.replace(/^\ufeff/, '').split(/\r?\n/).forEach((line, i) => {
    const m = /^(---|\.\.\.)(?:\s+(.*))?$/.exec(line);
    if (!m) { lines.push(line); return; }
    finish(i + 2);
    if (m[2] && !m[2].startsWith('#')) { start = i + 1; lines.push(m[2]); }
  });
  finish(0);
  if (out.length > MAX_DOCUMENTS) throw new Error(`The text has ${out.length} objects; the page takes ${MAX_DOCUMENTS} at once.`);
  return out;
}
