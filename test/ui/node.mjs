// Logs and a shell, on a node that runs containers.

import assert from 'node:assert/strict';
import { api, end, go, logIn, page, playFast, step, until } from './browser.mjs';

await step('log in', logIn);

await step('logs of a real container follow', async () => {
  await api('POST', '/api/v1/namespaces/default/pods', { apiVersion: 'v1', kind: 'Pod', metadata: { name: 'talk' }, spec: { terminationGracePeriodSeconds: 1, containers: [{ name: 'c', image: process.env.UI_IMAGE,
    command: ['sh', '-c', 'i=0; while true; do i=$((i+1)); printf "tick $i \\033[31mred\\033[0m <b>bold</b>\\n"; sleep 0.2; done'] }] } });
  await go('#/object/core/pods/default/talk');
  await page.getByText('Running 1/1').waitFor();
  await page.getByRole('tab', { name: 'Logs' }).click();
  await page.getByRole('log').getByText('tick 1 red <b>bold</b>', { exact: true }).waitFor();
  const n = await page.locator('.log-line').count();
  await page.waitForFunction((x) => document.querySelectorAll('.log-line').length > x + 2, n);
  assert.equal(await page.locator('#main b').count(), 0);
});

// shows waits until the screen of the shell has a text.
const shows = (pattern) => page.waitForFunction((p) => new RegExp(p, 'm').test([...document.querySelectorAll('.terminal-row')].map((r) => r.textContent.trimEnd()).join('\n')), pattern);
const enter = async (line) => { await page.keyboard.type(line); await page.keyboard.press('Enter'); };

await step('a shell in the container', async () => {
  await page.getByRole('tab', { name: 'Shell' }).click();
  await page.getByRole('button', { name: 'Connect' }).click();
  await page.getByText('Connected', { exact: true }).waitFor();
  await enter('printf "\\033[1mloud\\033[0m <i>text</i>\\n"');
  await shows('^loud <i>text</i>$');
  assert.equal(await page.locator('.terminal i').count(), 0);
  assert.ok(!(await page.textContent('.terminal')).includes('\u001b'));
  await enter('echo answer=$((6*7))');
  await shows('^answer=42$');
  await page.locator('[role=log][aria-live=polite]').getByText('answer=42').waitFor();
});

await step('Ctrl-C, the arrow keys and Tab work', async () => {
  await enter('sleep 1000; echo $?');
  await page.keyboard.press('Control+c');
  await enter('echo still $((40+2))');
  await shows('^still 42$');
  await page.keyboard.press('ArrowUp');
  for (let i = 0; i < 2; i++) await page.keyboard.press('Backspace');
  await page.keyboard.type('+1))');
  await page.keyboard.press('Enter');
  await shows('^still 43$');
  await enter('touch /tmp/a-long-name');
  await page.keyboard.type('ls /tmp/a-lo');
  await page.keyboard.press('Tab');
  await page.keyboard.press('Enter');
  await shows('^/tmp/a-long-name$');
});

await step('the program knows the size of the terminal', async () => {
  const size = () => page.evaluate(() => { const c = document.querySelector('.terminal-probe').getBoundingClientRect(); const o = document.querySelector('.terminal'); return [Math.floor((o.clientHeight - 20) / c.height), Math.floor((o.clientWidth - 24) / (c.width / 50))].join(' '); });
  await enter('stty size');
  await shows('^' + await size() + '$');
  const before = await size();
  await page.setViewportSize({ width: 900, height: 640 });
  await until('the terminal is smaller', async () => await size() !== before);
  const after = await size();
  await enter(`clear; while [ "$(stty size)" != "${after}" ]; do sleep 0.1; done; stty size`);
  await shows('^' + after + '$');
});

await step('vi, less and top', async () => {
  await enter('vi /tmp/file');
  await shows('^~$');
  await page.keyboard.type('ihello from vi');
  await page.keyboard.press('Enter');
  await page.keyboard.type('second line');
  await shows('^second line$');
  await page.keyboard.press('Escape');
  await shows('^- /tmp/file'); // vi waits a moment to see whether Escape begins a key
  await page.keyboard.type('kdd');
  await enter(':wq');
  await enter('clear; cat /tmp/file; echo end=$?');
  await shows('^second line\nend=0$');
  await enter('seq 500 | less');
  await shows('^1\n2\n3$');
  await page.keyboard.press('Shift+G');
  await shows('^499\n500$');
  await page.keyboard.press('q');
  await enter('top');
  await shows('^ *PID');
  await page.keyboard.press('q');
  await enter('clear; echo after $((1+1))');
  await shows('^after 2$');
});

await step('fast output is drawn, and the page still answers', async () => {
  await enter('seq 100000; echo done $((2+2))');
  await shows('^done 4$');
  assert.ok(await page.locator('.terminal-row').count() < 500);
  await page.locator('.terminal').evaluate((e) => { e.scrollTop = 0; }); // what has left the screen
  await shows('^9[0-9]{4}$');
  await enter('echo down');
  await shows('^down$');
});

await step('the keyboard leaves the shell, and comes back', async () => {
  await page.keyboard.press('Control+Shift+L');
  assert.equal(await page.evaluate(() => document.activeElement.textContent), 'Disconnect');
  await page.locator('.terminal-input').focus();
  await enter('exit 3');
  await page.getByText('exit code 3', { exact: false }).first().waitFor();
});

await step('a trace of a real node is played to hop 11', async () => {
  await go('#/learn?of=default/pods:talk');
  await page.getByRole('button', { name: 'Play' }).and(page.locator(':enabled')).waitFor();
  const stations = await playFast();
  for (const n of [2, 3, 4, 5, 6, 7, 8, 10, 11]) assert.ok(stations.includes(n), `hop ${n} was not played, only ${stations}`);
  await page.locator('#hop-card-11').getByText('The bytes of the status that nodes wrote').waitFor();
  await go('#/object/core/pods/default/talk');
});

await step('the trace has the hops of the node', async () => {
  await page.getByRole('tab', { name: 'Trace' }).click();
  await page.getByRole('tree').getByText('sandbox', { exact: false }).first().waitFor();
});

await end();
