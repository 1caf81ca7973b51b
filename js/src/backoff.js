/** Spreads the clients over the whole delay: random·min(limit, base·2^retry). */
export function fullJitter(base, limit) {
  return (retry, random) => random * Math.min(limit, base * 2 ** Math.min(retry, 64)); // 0·2^1024 would not be a number
}
