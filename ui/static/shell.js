// A shell in a container: a terminal of this page's own, on the exec subresource with a TTY.

import { h, fill, announce, dialog, visible } from './dom.js';
import { socket } from './api.js';
import { Output, Terminal, widthOf, foreground, background, BOLD, DIM, ITALIC, UNDERLINE, INVERSE, HIDDEN, STRIKE } from './terminal.js';
import { bytesOf, pasted } from './keys.js';

const BUDGET = 12; // milliseconds that reading output may take before the page does something else
const SPARE = 200; // rows above and below the ones in sight that are in the document, so that they can be selected
const SPOKEN = 20; // lines in a second that screen readers are told of; of more they hear the last ones

const flags = [[BOLD, 't-bold'], [DIM, 't-dim'], [ITALIC, 't-italic'], [UNDERLINE, 't-underline'], [STRIKE, 't-strike']];

// classOf returns the classes of a text. What stands on a colour has the colour of the page's ground, which is readable on each of them.
function classOf(attr) {
  let front = foreground(attr);
  let back = background(attr);
  if (attr & INVERSE) [front, back] = [back, front || 17];
  return [back ? 't-on t-bg-' + (back - 1) : front ? 't-fg-' + (front - 1) : '', ...flags.filter(([bit]) => attr & bit).map(([, name]) => name)].filter(Boolean).join(' ');
}

// textNodes returns a text as nodes. Characters that fonts draw in other widths get a box of one or two cells, so that columns stay straight.
function textNodes(text) {
  const out = [''];
  for (const c of text) {
    const n = c.codePointAt(0);
    const last = out.length - 1;
    const width = n < 0x2300 || (n >= 0x2500 && n < 0x25a0) ? -1 : widthOf(c);
    if (width > 0) out.push({ c, width }, '');
    else if (width === 0 && out[last] === '' && last > 0) out[last - 1].c += c;
    else out[last] += c;
  }
  return out.filter(Boolean).map((p) => (typeof p === 'string' ? p : h('span', { class: p.width === 2 ? 't-wide' : 't-one' }, p.c)));
}

function drawRow(el, row) {
  fill(el, row.runs().map(({ attr, text }) => {
    const name = classOf(attr);
    const nodes = attr & HIDDEN ? [' '.repeat([...text].length)] : textNodes(text);
    return name ? h('span', { class: name }, nodes) : nodes;
  }));
}

export function show(box, ctx) {
  let ws = null;
  const containers = [...(ctx.object.spec.containers || []), ...(ctx.object.spec.ephemeralContainers || [])].map((c) => c.name);
  const container = h('select', { class: 'select', 'aria-label': 'Container' }, containers.map((n) => h('option', { value: n }, n)));
  const command = h('input', { class: 'input short', type: 'text', value: 'sh', 'aria-label': 'Command', spellcheck: 'false' });
  const button = h('button', { type: 'button', class: 'button primary', onclick: () => (ws ? ws.close() : connect()) }, 'Connect');
  const status = h('span', { class: 'hint', role: 'status' }, 'Not connected');
  const input = h('textarea', { class: 'terminal-input', 'aria-label': 'Type into the shell', 'aria-describedby': 'terminal-help', autocomplete: 'off', autocapitalize: 'off', autocorrect: 'off', spellcheck: 'false', disabled: true, rows: '1' });
  const caret = h('span', { class: 'terminal-cursor', 'aria-hidden': 'true' });
  const probe = h('span', { class: 'terminal-probe', 'aria-hidden': 'true' }, 'M'.repeat(50));
  const rows = h('div', { class: 'terminal-rows' });
  const out = h('div', { class: 'terminal', role: 'region', 'aria-label': 'Screen of the shell', tabindex: '0' }, rows, caret, input, probe);
  const spoken = h('div', { class: 'sr', role: 'log', 'aria-live': 'polite', 'aria-label': 'Output of the shell' });

  const send = (text, channel = 0) => {
    if (ws?.readyState !== WebSocket.OPEN) return;
    const bytes = new TextEncoder().encode(text);
    const message = new Uint8Array(bytes.length + 1);
    message[0] = channel;
    message.set(bytes, 1);
    ws.send(message);
  };

  // --- for those who listen ---

  let toSpeak = [];
  let speaking = 0;
  const speak = (line) => {
    if (!line) return;
    toSpeak.push(line);
    if (toSpeak.length > 2 * SPOKEN) toSpeak = toSpeak.slice(-SPOKEN);
    speaking ||= setTimeout(() => {
      speaking = 0;
      for (const l of toSpeak.slice(-SPOKEN)) spoken.appendChild(h('div', null, l));
      toSpeak = [];
      while (spoken.childElementCount > 2 * SPOKEN) spoken.firstChild.remove();
    }, 1000);
  };

  // --- drawing ---

  let output = new Output();
  let terminal = new Terminal(80, 24);
  const elements = new WeakMap(); // of rows
  let cell = { width: 8, height: 18 };
  let frame = 0;
  let reading = 0;
  const schedule = () => { frame ||= requestAnimationFrame(paint); };
  const read = () => {
    const until = performance.now() + BUDGET;
    reading = output.into(terminal, () => performance.now() < until) ? setTimeout(read) : 0;
    schedule();
  };
  const paint = () => {
    frame = 0;
    if (ctx.signal.aborted) return;
    const { height } = cell;
    const lines = terminal.lines();
    const atEnd = terminal.isWhole || out.scrollHeight - out.scrollTop - out.clientHeight < 2 * height;
    const seen = Math.ceil(out.clientHeight / height) + 1;
    const top = atEnd ? lines.length - seen : Math.floor(out.scrollTop / height);
    const spare = reading ? 0 : SPARE; // more comes at once
    const from = Math.max(0, top - spare);
    const to = Math.min(lines.length, top + seen + spare);
    const wanted = new Set();
    for (const row of lines.slice(from, to)) {
      let e = elements.get(row);
      if (!e) elements.set(row, e = { el: h('div', { class: 'terminal-row' }), version: -1 });
      if (e.version !== row.version) { e.version = row.version; drawRow(e.el, row); }
      wanted.add(e.el);
    }
    for (const el of [...rows.children]) if (!wanted.has(el)) el.remove();
    let at = rows.firstChild;
    for (const el of wanted) {
      if (at === el) at = at.nextSibling;
      else rows.insertBefore(el, at);
    }
    rows.style.paddingTop = from * height + 'px';
    rows.style.paddingBottom = (lines.length - to) * height + 'px';
    const y = (lines.length - terminal.rows + terminal.y) * height;
    for (const el of [caret, input]) el.style.transform = `translate(${terminal.x * cell.width}px, ${y}px)`;
    caret.hidden = !terminal.modes.cursor || !ws;
    if (atEnd) out.scrollTop = out.scrollHeight;
  };
  out.addEventListener('scroll', schedule, { passive: true });

  const measure = () => {
    const r = probe.getBoundingClientRect();
    if (!r.width) return;
    cell = { width: r.width / 50, height: r.height };
    out.style.setProperty('--cell', cell.width + 'px');
    const style = getComputedStyle(out);
    const columns = Math.floor((out.clientWidth - parseFloat(style.paddingLeft) - parseFloat(style.paddingRight)) / cell.width);
    const lines = Math.floor((out.clientHeight - parseFloat(style.paddingTop) - parseFloat(style.paddingBottom)) / cell.height);
    terminal.resize(columns, lines);
    send(JSON.stringify({ Width: terminal.columns, Height: terminal.rows }), 4);
    schedule();
  };

  // --- the connection ---

  const connect = () => {
    const q = new URLSearchParams({ container: container.value, stdin: 'true', stdout: 'true', tty: 'true' });
    for (const word of command.value.trim().split(/\s+/)) q.append('command', word);
    status.textContent = 'Connecting…';
    const sock = ws = socket(`/api/v1/namespaces/${encodeURIComponent(ctx.ns)}/pods/${encodeURIComponent(ctx.name)}/exec?` + q, ['v5.channel.k8s.io', 'v4.channel.k8s.io']);
    terminal = new Terminal(80, 24, { answer: send, line: speak });
    output = new Output();
    button.textContent = 'Disconnect';
    let ended = '';
    sock.onopen = () => {
      status.textContent = 'Connected';
      input.disabled = false;
      measure();
      input.focus({ preventScroll: true });
    };
    sock.onmessage = (e) => {
      const data = new Uint8Array(e.data);
      if (data[0] === 1 || data[0] === 2) { output.add(data.subarray(1)); reading ||= setTimeout(read); }
      if (data[0] === 3) {
        try {
          const st = JSON.parse(new TextDecoder().decode(data.subarray(1)));
          ended = st.status === 'Success' ? 'The command has ended.' : st.message || 'The command has failed.';
        } catch { ended = 'The command has ended.'; }
      }
    };
    sock.onclose = () => {
      if (ws === sock) ws = null;
      if (document.activeElement === input) button.focus();
      input.disabled = true;
      button.textContent = 'Connect';
      status.textContent = visible(ended || 'Disconnected. You may lack the right to “create pods/exec”, or the container has no such command.');
      announce(status.textContent);
      schedule();
    };
  };

  // --- the keyboard ---

  const leave = () => { button.focus(); announce('You have left the shell'); };
  const copy = () => { const text = String(getSelection()); if (text) navigator.clipboard?.writeText(text).then(() => announce('Copied')).catch(() => {}); return text !== ''; };
  const sayLine = () => setTimeout(() => { if (terminal.isWhole) announce(terminal.screen[terminal.y].toString()); }, 150);
  input.addEventListener('keydown', (e) => {
    const letter = e.ctrlKey && e.shiftKey && !e.altKey ? e.key.toLowerCase() : '';
    if (letter === 'l') { e.preventDefault(); leave(); return; }
    if (letter === 'c') { e.preventDefault(); copy(); return; }
    if (e.ctrlKey && !e.shiftKey && e.key === 'c' && copy()) { e.preventDefault(); getSelection().removeAllRanges(); return; }
    const bytes = bytesOf(e, terminal.modes.appCursor);
    if (bytes === null) return;
    e.preventDefault();
    e.stopPropagation();
    send(bytes);
    sayLine();
    out.scrollTop = out.scrollHeight;
  });
  // Input methods and keyboards of telephones bring text without keys.
  input.addEventListener('input', (e) => { if (!e.isComposing) { send(input.value); input.value = ''; } });
  input.addEventListener('compositionend', () => { send(input.value); input.value = ''; });
  input.addEventListener('paste', async (e) => {
    e.preventDefault();
    const text = e.clipboardData.getData('text/plain');
    const lines = text.split(/\r?\n/).length;
    if (lines > 1 && !terminal.modes.bracketed && !await dialog(`Paste ${lines} lines?`, h('p', null, 'The program runs each line as it comes.'), [{ text: 'No', value: false }, { text: 'Paste', value: true, class: 'button primary' }])) return;
    send(pasted(text, terminal.modes.bracketed));
  });
  out.addEventListener('mouseup', () => { if (!String(getSelection()) && !input.disabled) input.focus({ preventScroll: true }); });
  out.addEventListener('keydown', (e) => { if (e.target === out && e.key === 'Enter' && !input.disabled) { e.preventDefault(); input.focus(); } });

  const key = (label, code, name) => h('button', { type: 'button', class: 'button small', title: name, onclick: () => { send(code); input.focus(); } }, label);
  fill(box, h('div', { class: 'toolbar' }, container, h('label', { class: 'check' }, 'Command', command), button, key('Ctrl-C', '\u0003', 'Send control C'), key('Ctrl-D', '\u0004', 'Send control D'), key('Esc', '\u001b', 'Send escape'), key('Tab', '\t', 'Send tab'), status),
    out, spoken, h('p', { class: 'hint', id: 'terminal-help' }, 'All keys go to the shell. ', h('kbd', null, 'Ctrl'), ' ', h('kbd', null, 'Shift'), ' ', h('kbd', null, 'L'), ' leaves it, with ', h('kbd', null, 'C'), ' or ', h('kbd', null, 'V'), ' instead copies or pastes.'));
  const resize = new ResizeObserver(measure);
  resize.observe(out);
  ctx.signal.addEventListener('abort', () => { resize.disconnect(); clearTimeout(speaking); clearTimeout(reading); ws?.close(); });
  return {};
}
