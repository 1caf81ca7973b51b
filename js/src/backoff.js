/** Spreads the clients over the whole delay: random·min(limit, base·2^retry). */
export function fullJitter(base, limit) {
  return (retry, random) => random * Math.min(limit, base * 2 ** retry);
}
