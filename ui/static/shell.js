// A shell in a container: a line to type in, and what the program answers as text. Escape sequences of the program are removed.

import { h, fill, announce, visible } from './dom.js';
import { socket } from './api.js';
import { Screen } from './screen.js';

export function show(box, ctx) {
  const screen = new Screen();
  let ws = null;
  const history = [];
  let back = 0;
  const out = h('pre', { class: 'terminal', tabindex: '0', role: 'log', 'aria-label': 'Output of the shell' });
  const input = h('input', { class: 'terminal-input', type: 'text', 'aria-label': 'Type a line for the shell', autocomplete: 'off', autocapitalize: 'off', spellcheck: 'false', disabled: true });
  const status = h('span', { class: 'hint', role: 'status' }, 'Not connected');
  const containers = [...(ctx.object.spec.containers || []), ...(ctx.object.spec.ephemeralContainers || [])].map((c) => c.name);
  const container = h('select', { class: 'select', 'aria-label': 'Container' }, containers.map((n) => h('option', { value: n }, n)));
  const command = h('input', { class: 'input short', type: 'text', value: 'sh', 'aria-label': 'Command', spellcheck: 'false' });
  const button = h('button', { type: 'button', class: 'button primary', onclick: () => (ws ? ws.close() : connect()) }, 'Connect');
  const send = (s) => { if (ws?.readyState === WebSocket.OPEN) ws.send(new Uint8Array([0, ...new TextEncoder().encode(s)])); };
  const key = (label, code, name) => h('button', { type: 'button', class: 'button small', title: name, onclick: () => { send(code); input.focus(); } }, label);
  let drawing = 0;
  const draw = () => { if (!drawing) drawing = requestAnimationFrame(() => { drawing = 0; screen.flush(); out.textContent = visible(screen.toString()); out.scrollTop = out.scrollHeight; }); };

  const connect = () => {
    const q = new URLSearchParams({ container: container.value, stdin: 'true', stdout: 'true', tty: 'true' });
    for (const word of command.value.trim().split(/\s+/)) q.append('command', word);
    status.textContent = 'Connecting…';
    const sock = ws = socket(`/api/v1/namespaces/${encodeURIComponent(ctx.ns)}/pods/${encodeURIComponent(ctx.name)}/exec?` + q, ['v5.channel.k8s.io', 'v4.channel.k8s.io']);
    const decoder = new TextDecoder();
    button.textContent = 'Disconnect';
    let ended = '';
    sock.onopen = () => {
      status.textContent = 'Connected';
      input.disabled = false;
      input.focus();
      const size = JSON.stringify({ Width: Math.max(40, Math.floor(out.clientWidth / 8)), Height: Math.max(10, Math.floor(out.clientHeight / 18)) });
      sock.send(new Uint8Array([4, ...new TextEncoder().encode(size)]));
    };
    sock.onmessage = (e) => {
      const data = new Uint8Array(e.data);
      const channel = data[0];
      if (channel === 1 || channel === 2) { screen.add(decoder.decode(data.subarray(1), { stream: true })); draw(); }
      if (channel === 3) {
        try {
          const st = JSON.parse(new TextDecoder().decode(data.subarray(1)));
          ended = st.status === 'Success' ? 'The command has ended.' : st.message || 'The command has failed.';
        } catch { ended = 'The command has ended.'; }
      }
    };
    sock.onclose = () => {
      if (ws === sock) ws = null;
      input.disabled = true;
      button.textContent = 'Connect';
      status.textContent = visible(ended || 'Disconnected. You may lack the right to “create pods/exec”, or the container has no such command.');
      announce(status.textContent);
    };
  };

  input.addEventListener('keydown', (e) => {
    if (e.key === 'Enter') {
      const line = input.value;
      send(line + '\n');
      if (line) { history.push(line); if (history.length > 100) history.shift(); }
      back = 0;
      input.value = '';
    } else if (e.key === 'ArrowUp' || e.key === 'ArrowDown') {
      back = Math.max(0, Math.min(history.length, back + (e.key === 'ArrowUp' ? 1 : -1)));
      input.value = back ? history[history.length - back] : '';
      e.preventDefault();
    } else if (e.ctrlKey && e.key === 'c' && input.selectionStart === input.selectionEnd) {
      send('\u0003');
      e.preventDefault();
    } else if (e.ctrlKey && e.key === 'd' && !input.value) {
      send('\u0004');
      e.preventDefault();
    }
  });
  fill(box, h('div', { class: 'toolbar' }, container, h('label', { class: 'check' }, 'Command', command), button, key('Ctrl-C', '\u0003', 'Send control C'), key('Ctrl-D', '\u0004', 'Send control D'), key('Tab', '\t', 'Send tab'), status),
    out, h('div', { class: 'terminal-line' }, h('span', { 'aria-hidden': 'true' }, '›'), input));
  ctx.signal.addEventListener('abort', () => ws?.close());
  return {};
}
