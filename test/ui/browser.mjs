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
export const browser = await chromium.launch({
  executablePath: process.env.UI_CHROMIUM,
  args: ['--headless', '--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run', '--disable-background-networking', '--disable-component-update', '--disable-sync'],
});
// Chromium gives up what it loads when an interface of the machine comes or goes, as other tests make them. A page is then loaded again.
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
  made.on('page', (p) => { p.goto = retry(p.goto.bind(p)); p.reload = retry(p.reload.bind(p)); });
  return made;
};
export const context = await browser.newContext({ viewport: { width: 1360, height: 860 }, colorScheme: 'light', reducedMotion: 'reduce', ignoreHTTPSErrors: true });
context.setDefaultTimeout(20000);
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
  try {
    await f();
    assert.deepEqual(faults, []);
  } catch (e) {
    if (process.env.UI_SHOT) await page.screenshot({ path: process.env.UI_SHOT }).catch(() => {});
    console.log(`FAILED: ${name}: ${e.stack}\nat ${page.url()}\n${(await page.textContent('#main').catch(() => '')).slice(0, 1500)}`);
    await browser.close();
    process.exit(1);
  }
  console.log(`passed: ${name} (${Date.now() - start} ms)`);
}

// hash returns the part of the address that the page sets, as the page sees it: page.url() hears of changes a moment later.
export const hash = () => page.evaluate(() => location.hash);
export const go = (to) => page.evaluate((h) => { location.hash = h; }, to);
export const text = (s) => page.getByText(s, { exact: false }).first().waitFor();
// api makes a request as the page makes it.
export const api = (method, path, object) => page.evaluate(async ([m, p, o]) => (await import('/dashboard/api.js')).sendJSON(m, p, o), [method, path, object]);
// axe looks for serious faults of accessibility: all, or those of some rules.
export async function axe(where, rules = null) {
  if (!await page.evaluate(() => globalThis.axe)) await page.evaluate(axeSource);
  const found = await page.evaluate((r) => globalThis.axe.run(document, { resultTypes: ['violations'], ...(r && { runOnly: r }) }), rules);
  const bad = found.violations.filter((v) => v.impact === 'serious' || v.impact === 'critical')
    .map((v) => `${where}: ${v.id} (${v.impact}): ${v.nodes.slice(0, 3).map((n) => n.html.slice(0, 160) + ' ' + (n.any[0]?.message || '')).join(' | ')}`);
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
  await page.locator('.play-clock').getByText(/ in all$/).waitFor({ timeout: 60000 });
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
