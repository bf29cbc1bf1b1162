// Logs and a shell, on a node that runs containers.

import assert from 'node:assert/strict';
import { api, end, go, logIn, page, step } from './browser.mjs';

await step('log in', logIn);

await step('logs of a real container follow', async () => {
  await api('POST', '/api/v1/namespaces/default/pods', { apiVersion: 'v1', kind: 'Pod', metadata: { name: 'talk' }, spec: { terminationGracePeriodSeconds: 1, containers: [{ name: 'c', image: process.env.UI_IMAGE,
    command: ['sh', '-c', 'i=0; while true; do i=$((i+1)); printf "tick $i \\033[31mred\\033[0m <b>bold</b>\\n"; sleep 0.2; done'] }] } });
  await go('#/object/core/pods/default/talk');
  await page.getByText('Running 1/1').waitFor({ timeout: 60000 });
  await page.getByRole('tab', { name: 'Logs' }).click();
  await page.getByRole('log').getByText('tick 1 red <b>bold</b>', { exact: true }).waitFor();
  const n = await page.locator('.log-line').count();
  await page.waitForFunction((x) => document.querySelectorAll('.log-line').length > x + 2, n);
  assert.equal(await page.locator('#main b').count(), 0);
});

await step('a shell in the container', async () => {
  await page.getByRole('tab', { name: 'Shell' }).click();
  await page.getByRole('button', { name: 'Connect' }).click();
  await page.getByText('Connected', { exact: true }).waitFor();
  const line = page.getByRole('textbox', { name: 'Type a line' });
  await line.fill('printf "\\033[1mloud\\033[0m <i>text</i>\\n"');
  await page.keyboard.press('Enter');
  await page.waitForFunction(() => /^loud <i>text<\/i>$/m.test(document.querySelector('.terminal').textContent));
  assert.equal(await page.locator('.terminal i').count(), 0);
  assert.ok(!(await page.textContent('.terminal')).includes('\u001b'));
  await line.fill('echo answer=$((6*7))');
  await page.keyboard.press('Enter');
  await page.waitForFunction(() => document.querySelector('.terminal').textContent.includes('answer=42'));
  await line.fill('exit 3');
  await page.keyboard.press('Enter');
  await page.getByText('exit code 3', { exact: false }).waitFor();
});

await step('the trace has the hops of the node', async () => {
  await page.getByRole('tab', { name: 'Trace' }).click();
  await page.getByRole('tree').getByText('sandbox', { exact: false }).first().waitFor();
});

await end();
