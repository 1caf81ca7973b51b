import { fullJitter } from "./backoff.js";

const none = undefined;

/** The defaults, and what each option has to be. */
const options = {
  fetch: [none, isFunction],
  storage: [none, (v) => v === null || ["getItem", "setItem", "removeItem"].every((name) => hasMethod(v, name)), "has no getItem, setItem, removeItem"],
  storagePrefix: ["semel:", isText],
  scope: [none, (v) => isText(v) && v !== "" && v.isWellFormed?.() !== false],
  lock: [true, (v) => typeof v === "boolean"],
  dialect: [none, (v) => typeof v === "object", "is not what stripe() and its like return"],
  classify: [none, isFunction],
  header: ["Idempotency-Key", isToken],
  bare: [false, (v) => typeof v === "boolean"],
  correlationHeader: [none, (v) => v === null || isToken(v)],
  methods: [["POST", "PATCH"], (v) => Array.isArray(v) && v.every((m) => isToken(m) && m === m.toUpperCase() && !isSafe(m)), "has to list unsafe methods in upper case"],
  keyFor: [none, isFunction],
  maxAttempts: [4, (v) => Number.isInteger(v) && v > 0],
  maxAge: [24 * 3600 * 1000, (v) => isTime(v) && v > 0],
  backoff: [fullJitter(100, 30_000), isFunction],
  random: [Math.random, isFunction],
  maxRetryAfter: [60_000, isTime],
  budget: [{}, isBudget, "wants off, or a share of 0 to 1 and a burst from 0; nothing else"],
  attemptTimeout: [30_000, isTime],
  waitOnline: [true, (v) => typeof v === "boolean"],
  pollEvery: [0, isTime],
  statusURL: [none, (v) => (isText(v) || v instanceof URL) && isAddress(v)],
  crossOrigin: [[], (v) => Array.isArray(v) && v.every((origin) => isAddress(origin) && new URL(origin, away).origin === origin), "has to list origins"],
  onAttempt: [none, isFunction],
  onWarning: [(warning) => console.warn(`idempotent calls: ${warning.message}`, warning.error ?? ""), isFunction],
};

/** Fills in the defaults, or throws a TypeError that says all that is wrong. */
export function compile(given) {
  const { field, classify: _, ...spoken } = Object(given.dialect);
  const wrong = [];
  const o = { field };
  for (const name in options) o[name] = options[name][0];
  for (const [name, value] of [...Object.entries(spoken), ...Object.entries(given)]) {
    if (value === none && options[name]) continue;
    const [, holds, want = "is not what it has to be"] = options[name] ?? [none, () => false, "is no option"];
    if (!holds(value)) wrong.push(`${name} ${want}: ${isText(value) ? `"${value}"` : String(value)}`);
    o[name] = value;
  }
  if (`${o.header}`.toLowerCase() === `${o.correlationHeader}`.toLowerCase()) wrong.push(`header and correlationHeader are both ${o.header}`);
  if (wrong.length === 0) {
    const delay = o.backoff(0, o.random()); // what is no number would only be seen when a request has to be repeated
    if (!isTime(delay)) wrong.push(`backoff gives ${delay}, want a number of milliseconds`);
  }
  if (wrong.length > 0) throw new TypeError(`idempotent client: ${wrong.join("; ")}`);
  return Object.freeze({ ...o, methods: [...o.methods], fetch: o.fetch ?? ((url, init) => globalThis.fetch(url, init)) });
}

/** Whether a method is safe (RFC 9110, section 9.2.1), so that it may be repeated without a key. */
export function isSafe(method) {
  return ["GET", "HEAD", "OPTIONS", "TRACE"].includes(method);
}

function isBudget(v) {
  const { off = false, share, burst, ...more } = Object(v);
  const bound = (share === none || (share >= 0 && share <= 1)) && (burst === none || (Number.isInteger(burst) && burst >= 0));
  return v !== null && typeof v === "object" && Object.keys(more).length === 0 && bound && !(off && (share ?? burst) !== none);
}

const away = "https://relative.invalid"; // for addresses that are relative to the request's

function isAddress(v) {
  try {
    return Boolean(new URL(v, away));
  } catch {
    return false;
  }
}

/** A page may forbid even to look at what it was given. */
function hasMethod(object, name) {
  try {
    return isFunction(object[name]);
  } catch {
    return true;
  }
}

function isFunction(v) {
  return typeof v === "function";
}

function isText(v) {
  return typeof v === "string";
}

function isTime(v) {
  return Number.isFinite(v) && v >= 0;
}

function isToken(v) {
  return isText(v) && /^[!#$%&'*+\-.^_`|~0-9A-Za-z]+$/.test(v); // RFC 9110, section 5.6.2
}
