// The browser of the tests, and what they have in common. ui_test.go sets the environment.

import assert from 'node:assert/strict';
import fs from 'node:fs';
import { createRequire } from 'node:module';

const require = createRequire(process.env.UI_MODULES + '/');
const { chromium } = require('playwright-core');
const axeSource = fs.readFileSync(require.resolve('axe-core/axe.min.js'), 'utf8');
export const fixture = (name) => fs.readFileSync(new URL('testdata/' + name, import.meta.url), 'utf8');

export const base = process.env.UI_ADDRESS; // of the proxy, with /dashboard/
export const server = process.env.UI_SERVER; // of the API server
// A wait ends with its event; how long it may take is only for pages that are broken. Machines that test may be very busy.
const PATIENCE = 90000; // milliseconds
export const browser = await chromium.launch({
  executablePath: process.env.UI_CHROMIUM,
  timeout: 2 * PATIENCE,
  args: ['--headless', '--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run', '--disable-background-networking', '--disable-component-update', '--disable-sync'],
});
// Chromium gives up what it loads when an interface of the machine comes or goes, as other tests make them. A page is then loaded again.
// What else was given up may be a module or an answer that the page needs: a script whose step fails after that, says so by the code with
// which it ends, and ui_test.go runs it again.
const RUN_AGAIN = 75;
let networkHasChanged = false; // in the present step
const note = (message) => { networkHasChanged ||= message.includes('ERR_NETWORK_CHANGED'); };
const retry = (load) => async (...args) => {
  for (let i = 0; ; i++) {
    try {
      return await load(...args);
    } catch (e) {
      if (i === 9 || !e.message.includes('ERR_NETWORK_CHANGED')) throw e;
    }
  }
};
const newContext = browser.newContext.bind(browser);
browser.newContext = async (...args) => {
  const made = await newContext(...args);
  made.setDefaultTimeout(PATIENCE);
  made.on('page', (p) => {
    p.goto = retry(p.goto.bind(p));
    p.reload = retry(p.reload.bind(p));
    p.on('websocket', (ws) => ws.on('socketerror', note));
  });
  made.on('requestfailed', (r) => note(r.failure()?.errorText || ''));
  return made;
};
export const context = await browser.newContext({ viewport: { width: 1360, height: 860 }, colorScheme: 'light', reducedMotion: 'reduce', ignoreHTTPSErrors: true });
export const page = await context.newPage();
const faults = [];
// Where a test answers WebSockets itself, Playwright's stand-in for them throws this when a message comes for one that the page has just
// closed. A WebSocket of the browser never throws it.
const ofStandIn = 'WebSocket is already in CLOSING or CLOSED state.';
page.on('pageerror', (e) => { if (e.message !== ofStandIn) faults.push('error on the page: ' + e.message); });
page.on('console', (m) => { if (/Content Security Policy|Trusted/i.test(m.text())) faults.push(m.text()); });

const began = Date.now();
export async function step(name, f) {
  const start = Date.now();
  networkHasChanged = false; // nothing that the steps before needed was lost: they passed
  try {
    await f();
    assert.deepEqual(faults, []);
  } catch (e) {
    if (process.env.UI_SHOT) await page.screenshot({ path: process.env.UI_SHOT }).catch(() => {});
    console.log(`FAILED: ${name}: ${e.stack}\nat ${page.url()}\n${(await page.textContent('#main', { timeout: 1000 }).catch(() => '')).slice(0, 1500)}`);
    await browser.close();
    process.exit(networkHasChanged ? RUN_AGAIN : 1);
  }
  console.log(`passed: ${name} (${Date.now() - start} ms)`);
}

// until asks again and again until the answer is one, for what happens outside the page. What is waited for is a text, or a function that
// returns one when it did not happen.
export async function until(what, ask) {
  for (const end = Date.now() + PATIENCE; ;) {
    const answer = await ask();
    if (answer) return answer;
    if (Date.now() >= end) assert.fail('it did not happen: ' + (typeof what === 'function' ? what() : what));
    await new Promise((resolve) => { setTimeout(resolve, 20); });
  }
}
// hurry makes pages that are opened afterwards ask the server ten times as often as they do for people.
export const hurry = (of) => of.addInitScript(() => {
  for (const name of ['setTimeout', 'setInterval']) {
    const plain = window[name];
    window[name] = (f, time = 0, ...rest) => plain(f, time < 1000 ? time : time / 10, ...rest);
  }
});

// hash returns the part of the address that the page sets, as the page sees it: page.url() hears of changes a moment later.
export const hash = () => page.evaluate(() => location.hash);
export const go = (to) => page.evaluate((h) => { location.hash = h; }, to);
export const text = (s) => page.getByText(s, { exact: false }).first().waitFor();
// api makes a request as the page makes it. The error has the code of the answer.
export async function api(method, path, object) {
  const { answer, refusal } = await page.evaluate(async ([m, p, o]) => {
    const { sendJSON } = await import('/dashboard/api.js');
    try { return { answer: await sendJSON(m, p, o) }; } catch (e) { return { refusal: { code: e.code, message: e.message } }; }
  }, [method, path, object]);
  if (refusal) throw Object.assign(new Error(`${method} ${path}: ${refusal.message}`), { code: refusal.code });
  return answer;
}
// axe looks for serious faults of accessibility: all, or those of some rules.
export async function axe(where, rules = null) {
  if (!await page.evaluate(() => Boolean(globalThis.axe))) await page.evaluate(axeSource);
  const bad = await page.evaluate(async ([w, r]) => { // only what is said of faults leaves the page: the whole result is large
    const found = await globalThis.axe.run(document, { resultTypes: ['violations'], ...(r && { runOnly: r }) });
    return found.violations.filter((v) => v.impact === 'serious' || v.impact === 'critical')
      .map((v) => `${w}: ${v.id} (${v.impact}): ${v.nodes.slice(0, 3).map((n) => n.html.slice(0, 160) + ' ' + (n.any[0]?.message || '')).join(' | ')}`);
  }, [where, rules]);
  assert.deepEqual(bad, []);
}

// playFast plays the trace that is shown, much faster than for people, and returns the stations that have lit up.
export async function playFast() {
  await page.evaluate(() => {
    const frame = window.requestAnimationFrame;
    window.requestAnimationFrame = (f) => frame.call(window, (now) => f(now * 40));
    window.lit = new Set();
    new MutationObserver(() => { const n = document.querySelector('.station.now .hop-number')?.textContent; if (n) window.lit.add(Number(n)); })
      .observe(document.querySelector('.stations'), { subtree: true, attributes: true });
  });
  await page.getByRole('button', { name: 'Play' }).click();
  await page.locator('.play-clock').getByText(/ in all$/).waitFor();
  return page.evaluate(() => [...window.lit].sort((a, b) => a - b));
}

// logIn opens the page and types the code.
export async function logIn() {
  await page.goto(base);
  await page.fill('#secret', process.env.UI_CODE);
  await page.click('button[type=submit]');
  await page.getByRole('heading', { name: 'Overview' }).waitFor();
}

export async function end() {
  await browser.close();
  console.log(`all passed in ${Math.round((Date.now() - began) / 1000)} s`);
}
