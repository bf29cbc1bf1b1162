// What tests of the page's modules without a browser have in common.

import fs from 'node:fs';

// load imports a file of the page that imports no others.
export const load = (name) => import('data:text/javascript;base64,' + fs.readFileSync(new URL('../../ui/static/' + name, import.meta.url)).toString('base64'));

// randomNumbers returns a function that returns whole numbers below n, the same ones in every run (a linear congruential generator).
export function randomNumbers(seed) {
  let state = seed;
  return (n) => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return Math.floor(state / 2 ** 32 * n);
  };
}
