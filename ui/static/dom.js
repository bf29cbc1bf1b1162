// Builds the page. Every text of the cluster goes through h() or setText() and becomes a text node: there is no way from a string to
// markup in this program.

const SVG = 'http://www.w3.org/2000/svg';

// visible replaces what a text could do rather than say: control characters, and marks that change the direction of writing. They
// are shown as symbols.
export function visible(s) {
  return String(s).replace(/[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ufeff]/g, (c) => {
    const n = c.charCodeAt(0);
    if (n < 0x20) return String.fromCharCode(0x2400 + n);
    if (n === 0x7f) return '\u2421';
    return '\ufffd';
  });
}

// h makes an element. A property that starts with "on" is a listener; "class" may be a list; null and false leave an attribute out.
// Styles are set with the functions of the element's style object, never by an attribute.
export function h(tag, props, ...children) {
  const el = document.createElement(tag);
  for (const [name, value] of Object.entries(props || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name === 'class') el.className = Array.isArray(value) ? value.filter(Boolean).join(' ') : value;
    else if (name.startsWith('on')) el.addEventListener(name.slice(2), value);
    else if (name === 'style' || name === 'srcdoc' || name === 'src') throw new Error('h() does not set ' + name);
    else if (name === 'href') el.setAttribute('href', safeHref(value));
    else if (name === 'value') el.value = value;
    else if (value === true) el.setAttribute(name, '');
    else el.setAttribute(name, visible(value));
  }
  append(el, children);
  return el;
}

// safeHref lets links lead within the page only.
function safeHref(value) {
  value = String(value);
  return value.startsWith('#') ? value : '#/overview';
}

function append(el, children) {
  for (const c of children) {
    if (c === null || c === undefined || c === false) continue;
    if (Array.isArray(c)) append(el, c);
    else if (c instanceof Node) el.appendChild(c);
    else el.appendChild(document.createTextNode(visible(c)));
  }
}

// fill replaces the children of an element.
export function fill(el, ...children) {
  el.replaceChildren();
  append(el, children);
  return el;
}

// setText sets the text of an element, if it is another one.
export function setText(el, s) {
  const text = visible(s);
  if (el.textContent !== text) el.textContent = text;
}

// setHint sets the text that an element shows under the pointer.
export function setHint(el, s) {
  const text = visible(s);
  if (el.title !== text) el.title = text;
}

const paths = {
  ok: 'M4 12.5l5 5L20 6.5', bad: 'M6 6l12 12M18 6L6 18', warn: 'M12 4L2.5 20h19zM12 10v4.500M12 17v.5',
  progress: 'M12 3a9 9 0 1 1-8.5 6M3.5 4v5h5', idle: 'M7 12h10', unknown: 'M9 9a3 3 0 1 1 4.5 2.600c-1 .6-1.5 1.200-1.5 2.400M12 17.500v.5',
  search: 'M10.5 4a6.5 6.5 0 1 0 0 13 6.5 6.5 0 0 0 0-13zM15.5 15.500L21 21', menu: 'M4 6h16M4 12h16M4 18h16',
  close: 'M6 6l12 12M18 6L6 18', right: 'M9 5l7 7-7 7', down: 'M5 9l7 7 7-7', play: 'M7 4.500v15l12-7.500z', pause: 'M8 5v14M16 5v14',
  next: 'M6 5l8 7-8 7zM18 5v14', previous: 'M18 5l-8 7 8 7zM6 5v14',
  theme: 'M12 4a8 8 0 1 0 0 16zM12 4a8 8 0 0 1 0 16', hidden: 'M4 4l16 16M3 12c2-4 5-6 9-6s7 2 9 6c-2 4-5 6-9 6s-7-2-9-6z',
  critical: 'M12 3l9 9-9 9-9-9z', help: 'M9 9a3 3 0 1 1 4.5 2.600c-1 .6-1.5 1.200-1.5 2.400M12 17.500v.5', out: 'M14 4h6v16h-6M4 12h11M11 8l4 4-4 4',
  overview: 'M4 4h7v9H4zM13 4h7v5h-7zM13 11h7v9h-7zM4 15h7v5H4z', stuck: 'M12 4L2.5 20h19zM12 10v4.500M12 17v.5',
  create: 'M12 5v14M5 12h14', trace: 'M4 6h8M8 12h9M13 18h7', learn: 'M4 5c3-1 6-1 8 1 2-2 5-2 8-1v13c-3-1-6-1-8 1-2-2-5-2-8-1zM12 6v13',
};

// icon makes a small picture. It is for the eye only: a text always stands beside it.
export function icon(name) {
  const svg = document.createElementNS(SVG, 'svg');
  svg.setAttribute('viewBox', '0 0 24 24');
  svg.setAttribute('aria-hidden', 'true');
  svg.setAttribute('class', 'icon icon-' + (paths[name] ? name : 'unknown'));
  const p = document.createElementNS(SVG, 'path');
  p.setAttribute('d', paths[name] || paths.unknown);
  svg.appendChild(p);
  return svg;
}

// badge shows a state by colour, icon and text.
export function badge(state, text) {
  return h('span', { class: ['badge', 'is-' + state] }, icon(state), h('span', null, text));
}

// announce tells screen readers what has changed.
export function announce(text) {
  const el = document.getElementById('announce');
  el.textContent = '';
  setTimeout(() => setText(el, text), 50);
}

// age says how long ago a time was, as kubectl says it.
export function age(time, now = Date.now()) {
  if (!time) return '–';
  const t = Date.parse(time);
  if (Number.isNaN(t)) return '–';
  return shortDuration(Math.max(0, (now - t) / 1000));
}

// shortDuration writes seconds in one or two units.
export function shortDuration(s) {
  s = Math.floor(s);
  if (s < 120) return s + 's';
  const m = Math.floor(s / 60);
  if (m < 10) return m + 'm' + (s % 60 ? (s % 60) + 's' : '');
  if (m < 180) return m + 'm';
  const hours = Math.floor(m / 60);
  if (hours < 8) return hours + 'h' + (m % 60 ? (m % 60) + 'm' : '');
  if (hours < 48) return hours + 'h';
  const d = Math.floor(hours / 24);
  if (d < 8) return d + 'd' + (hours % 24 ? (hours % 24) + 'h' : '');
  if (d < 730) return d + 'd';
  return Math.floor(d / 365) + 'y';
}

// nanos writes a duration in nanoseconds with three digits.
export function nanos(ns) {
  const unit = (x, u) => (x >= 100 ? x.toFixed(0) : x >= 10 ? x.toFixed(1) : x.toFixed(2)) + ' ' + u;
  if (ns < 1e3) return Math.max(0, Math.round(ns)) + ' ns';
  if (ns < 1e6) return unit(ns / 1e3, 'µs');
  if (ns < 1e9) return unit(ns / 1e6, 'ms');
  if (ns < 120e9) return unit(ns / 1e9, 's');
  return shortDuration(ns / 1e9);
}

// when writes a time for people, with the date if it is not today.
export function when(time) {
  const t = new Date(time);
  if (Number.isNaN(t.getTime())) return String(time);
  const clock = t.toLocaleTimeString(undefined, { hour12: false });
  return t.toDateString() === new Date().toDateString() ? clock : t.toLocaleDateString() + ' ' + clock;
}

// reducedMotion says that the user wants nothing to move.
export const reducedMotion = () => matchMedia('(prefers-reduced-motion: reduce)').matches;

// dialog shows a modal dialog and resolves with the value of the button that closed it.
export function dialog(title, content, buttons) {
  return new Promise((resolve) => {
    const before = document.activeElement;
    const id = 'dialog-title';
    const box = h('dialog', { class: 'dialog', 'aria-labelledby': id },
      h('h2', { id }, title), content,
      h('div', { class: 'row end' }, buttons.map((b) => h('button', {
        type: 'button', class: b.class || 'button', onclick: () => { value = b.value; box.close(); },
      }, b.text))));
    let value = null;
    box.addEventListener('close', () => { box.remove(); before?.focus?.(); resolve(value); });
    document.body.appendChild(box);
    box.showModal();
  });
}

// plural is a number with a noun, in the plural unless the number is 1.
export const plural = (n, noun) => `${n} ${noun}${n === 1 ? '' : 's'}`;

// empty says why there is nothing to see.
export function empty(title, ...more) {
  return h('div', { class: 'empty' }, h('p', { class: 'empty-title' }, title), more.map((m) => (m instanceof Node ? m : h('p', null, m))));
}
