/** Spreads the clients over the whole delay: random·min(limit, base·2^retry). */
export function fullJitter(base, limit) {
  return (retry, random) => random * exponential(base, limit, retry);
}

/** Keeps to the delay, and adds a little: min(limit, base·2^retry + random·base). */
export function additiveJitter(base, limit) {
  return (retry, random) => Math.min(limit, exponential(base, limit, retry) + random * base);
}

function exponential(base, limit, retry) {
  return Math.min(limit, base * 2 ** Math.min(retry, 64)); // 0·2^1024 would not be a number
}
