import { fill } from "./fill.js";

const known = { off: [false], share: [0.1, (v) => v <= 1], burst: [10] };

/**
 * The bound of all repeats of a client to a share of its calls, for its options. Throws a TypeError that says
 * what is wrong with its own.
 */
export function budget(given = {}) {
  const { off, share, burst } = fill(known, given);
  return off ? () => () => true : bound(share, burst);
}

/**
 * Makes the repeats that are paid for: what a client gets of it is called once for each call, and, with true, for each
 * repeat, to pay for that and to report whether it could. Ten tenths are one, though their sum is less.
 */
export const bound = (share, burst) => (left = burst) => (repeat) =>
  repeat ? left > 0.999 && left-- : (left = Math.min(burst, left + share));
