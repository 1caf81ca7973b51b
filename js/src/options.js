import { fullJitter } from "./backoff.js";

/** What each option has to be, and what it is by default. */
const known = {
  fetch: [isFunction, (url, init) => globalThis.fetch(url, init)],
  dialect: [isObject],
  classify: [isFunction],
  polling: [(v) => isFunction(v?.ask)],
  header: [isToken, "Idempotency-Key"],
  bare: [isBoolean, false],
  correlationHeader: [(v) => v === null || isToken(v)],
  methods: [(v) => Array.isArray(v) && v.every((m) => isToken(m) && m === m.toUpperCase() && !isSafe(m)), ["POST", "PATCH"]],
  keyFor: [isFunction],
  maxAttempts: [(v) => Number.isInteger(v) && v > 0, 4],
  maxAge: [(v) => isTime(v) && v > 0, 24 * 3600 * 1000],
  backoff: [isFunction, fullJitter(100, 30_000)],
  random: [isFunction, Math.random],
  maxRetryAfter: [isTime, 60_000],
  budget: [isBudget, {}],
  attemptTimeout: [isTime, 30_000],
  waitOnline: [isBoolean, true],
  crossOrigin: [(v) => Array.isArray(v) && v.every((origin) => urlOf(origin)?.origin === origin), []],
  onAttempt: [isFunction],
};

function isBudget(v) {
  const { off = false, share = 0, burst = 0, ...more } = Object(v);
  return isObject(v) && isBoolean(off) && isTime(share) && share <= 1 && isTime(burst) && !Object.keys(more)[0];
}

/** Fills in the defaults of a client's options, or throws a TypeError that says what is wrong. */
export function compile(given) {
  const { field, classify: _, ...spoken } = Object(given.dialect);
  const o = fill(known, spoken, given);
  const { header, correlationHeader, backoff, random } = o;
  if (header.toLowerCase() === correlationHeader?.toLowerCase()) throw new TypeError("header and correlationHeader are the same");
  const delay = backoff(0, random()); // what is no number would only be seen when a request has to be repeated
  if (!isTime(delay)) throw new TypeError(`backoff gives ${delay}, want milliseconds`);
  return { field, ...o };
}

/** Fills in the defaults of options, or throws a TypeError that says all that is wrong. */
export function fill(known, ...given) {
  const o = {};
  for (const name in known) o[name] = known[name][1];
  const wrong = given.flatMap(Object.entries).filter(([name, value]) => {
    if (value === undefined && known[name]) return false;
    o[name] = value;
    return !known[name]?.[0](value);
  });
  if (wrong.length > 0) throw new TypeError(`not an option: ${wrong.map(([name, value]) => `${name}: ${String(value)}`).join("; ")}`);
  return o;
}

/** Whether a method is safe (RFC 9110, section 9.2.1), so that it may be repeated without a key. */
export const isSafe = (method) => ["GET", "HEAD", "OPTIONS", "TRACE"].includes(method);

export function isFunction(v) {
  return typeof v === "function";
}

export function isBoolean(v) {
  return typeof v === "boolean";
}

function isObject(v) {
  return typeof v === "object" && v !== null;
}

/** Whether a value can be a number of milliseconds. */
export function isTime(v) {
  return Number.isFinite(v) && v >= 0;
}

function isToken(v) {
  return typeof v === "string" && /^[!#$%&'*+\-.^_`|~\w]+$/.test(v); // RFC 9110, section 5.6.2
}

/** An address, undefined if it is none. */
export function urlOf(address, base) {
  try {
    return new URL(address, base);
  } catch {
    return undefined;
  }
}
