// What a key of the keyboard sends to a program in a terminal.

const cursor = { ArrowUp: 'A', ArrowDown: 'B', ArrowRight: 'C', ArrowLeft: 'D', Home: 'H', End: 'F' };
const numbered = { Insert: 2, Delete: 3, PageUp: 5, PageDown: 6, F5: 15, F6: 17, F7: 18, F8: 19, F9: 20, F10: 21 };
const letters = { F1: 'P', F2: 'Q', F3: 'R', F4: 'S' };
const controls = { ' ': '\0', '@': '\0', '[': '\u001b', '\\': '\u001c', ']': '\u001d', '^': '\u001e', _: '\u001f', '/': '\u001f', '?': '\u007f' };
const ESC = '\u001b';

// bytesOf returns what a keydown event sends, or null if the key is not for the program: those of the browser, of the system, and the
// ones with Ctrl and Shift that a terminal keeps for itself. AppCursor is the mode of the terminal in which arrows have other codes.
export function bytesOf(e, appCursor = false) {
  const altGraph = Boolean(e.getModifierState?.('AltGraph'));
  const alt = e.altKey && !altGraph;
  const ctrl = e.ctrlKey && !altGraph;
  if (e.metaKey || e.isComposing || e.key === 'Dead' || e.key === 'Process') return null;
  if (ctrl && e.shiftKey && /^[a-z]$/i.test(e.key)) return null;
  const modifiers = 1 + (e.shiftKey ? 1 : 0) + (alt ? 2 : 0) + (ctrl ? 4 : 0);
  const meta = alt ? ESC : '';
  if (Object.hasOwn(cursor, e.key)) return modifiers > 1 ? `${ESC}[1;${modifiers}${cursor[e.key]}` : ESC + (appCursor ? 'O' : '[') + cursor[e.key];
  if (Object.hasOwn(letters, e.key)) return modifiers > 1 ? `${ESC}[1;${modifiers}${letters[e.key]}` : ESC + 'O' + letters[e.key];
  if (Object.hasOwn(numbered, e.key)) return `${ESC}[${numbered[e.key]}${modifiers > 1 ? ';' + modifiers : ''}~`;
  switch (e.key) {
    case 'Enter': return meta + '\r';
    case 'Backspace': return meta + (ctrl ? '\b' : '\u007f');
    case 'Tab': return e.shiftKey ? ESC + '[Z' : ctrl || alt ? null : '\t';
    case 'Escape': return meta + ESC;
  }
  if ([...e.key].length !== 1) return null; // Shift, CapsLock and the like
  if (!ctrl) return meta + e.key;
  if (/^[a-z]$/i.test(e.key)) return meta + String.fromCharCode(e.key.toUpperCase().charCodeAt(0) & 31);
  return Object.hasOwn(controls, e.key) ? meta + controls[e.key] : null;
}

// pasted returns what a pasted text sends: line ends as the Enter key, and no other control characters, which could end the brackets
// around it and so become commands.
export function pasted(text, bracketed) {
  const plain = text.replace(/\r?\n/g, '\r').replace(/[\u0000-\u0008\u000b\u000c\u000e-\u001f\u007f-\u009f]/g, '').slice(0, 1 << 20);
  return bracketed ? ESC + '[200~' + plain + ESC + '[201~' : plain;
}
