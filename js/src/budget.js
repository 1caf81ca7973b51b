import { fill } from "./fill.js";

const known = { off: [false], share: [0.1, (v) => v <= 1], burst: [10] };

/**
 * The repeats that are paid for: what it returns is called once for each call, and, with true, for each repeat,
 * to pay for that and to report whether it could. Ten tenths are one, though their sum is less.
 */
export function budgetOf(given) {
  const { off, share, burst } = fill(known, given);
  let left = burst;
  return (repeat) => (repeat ? off || (left > 0.999 && left--) : (left = Math.min(burst, left + share)));
}
