// Fails a step, after Chromium has given up a request because the network of the machine changed, in the step that UI_DISTURBED names.

import assert from 'node:assert/strict';
import { context, step } from './browser.mjs';

const givenUp = { failure: () => ({ errorText: 'net::ERR_NETWORK_CHANGED' }) };
for (const name of ['first', 'second']) {
  await step(name, () => {
    if (process.env.UI_DISTURBED === name) context.emit('requestfailed', givenUp);
    assert.equal(name, 'first', 'it fails');
  });
}
