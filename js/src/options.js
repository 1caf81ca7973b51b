import { fullJitter } from "./backoff.js";

const defaults = {
  fetch: undefined,
  storage: undefined,
  storagePrefix: "semel:",
  scope: undefined,
  lock: true,
  dialect: undefined,
  classify: undefined,
  header: "Idempotency-Key",
  bare: false,
  correlationHeader: undefined,
  methods: ["POST", "PATCH"],
  keyFor: undefined,
  maxAttempts: 4,
  maxAge: 24 * 3600 * 1000,
  backoff: fullJitter(100, 30_000),
  random: Math.random,
  maxRetryAfter: 60_000,
  budget: {},
  attemptTimeout: 30_000,
  waitOnline: true,
  pollEvery: 0,
  statusURL: undefined,
  crossOrigin: [],
  onAttempt: undefined,
  onWarning: (warning) => console.warn(`idempotent calls: ${warning.message}`, warning.error ?? ""),
};

/** Fills in the defaults, or throws a TypeError that says all that is wrong. */
export function compile(given) {
  const wrong = [];
  const check = (holds, text) => holds || wrong.push(text);
  for (const name of Object.keys(given)) check(name in defaults, `there is no option ${name}`);
  const told = Object.entries(given).filter(([, value]) => value !== undefined);
  const { header, field, bare, maxAge } = given.dialect ?? {};
  const spoken = Object.entries({ header, bare, maxAge }).filter(([, value]) => value !== undefined);
  const o = { ...defaults, ...Object.fromEntries([...spoken, ...told]), field };

  check(isToken(o.header), `header: ${quote(o.header)} is not a header's name`);
  const correlates = o.correlationHeader == null || isToken(o.correlationHeader);
  check(correlates, `correlationHeader: ${quote(o.correlationHeader)} is not a header's name`);
  check(lower(o.header) !== lower(o.correlationHeader), `header and correlationHeader are both ${o.header}`);
  check(typeof o.storagePrefix === "string", "storagePrefix is not a string");
  check(Array.isArray(o.methods), "methods is not an array");
  for (const method of Array.isArray(o.methods) ? o.methods : []) {
    const unsafe = isToken(method) && method === method.toUpperCase() && !isSafe(method);
    check(unsafe, `methods: ${quote(method)} is not an unsafe method's upper-case name`);
  }
  for (const name of ["maxAge", "maxRetryAfter", "attemptTimeout", "pollEvery"]) {
    check(Number.isFinite(o[name]) && o[name] >= 0, `${name} is not a number of milliseconds: ${quote(o[name])}`);
  }
  check(o.maxAge !== 0, "maxAge is 0");
  check(Number.isInteger(o.maxAttempts) && o.maxAttempts > 0, `maxAttempts is not a number from 1: ${quote(o.maxAttempts)}`);
  check(o.dialect === undefined || typeof o.dialect === "object", "dialect is not what stripe() and its like return");
  check(o.scope === undefined || (typeof o.scope === "string" && o.scope !== ""), "scope is not a text");
  check(Array.isArray(o.crossOrigin) && o.crossOrigin.every(isOrigin), "crossOrigin is not an array of origins");
  for (const name of ["fetch", "keyFor", "classify", "backoff", "random", "onAttempt", "onWarning"]) {
    check(o[name] === undefined || typeof o[name] === "function", `${name} is not a function`);
  }
  check(o.statusURL === undefined || isAddress(o.statusURL), `statusURL is not an address: ${quote(o.statusURL)}`);
  if (o.storage !== null && o.storage !== undefined) {
    for (const name of ["getItem", "setItem", "removeItem"]) check(hasMethod(o.storage, name), `storage has no ${name}`);
  }
  checkBudget(o.budget, check);
  if (wrong.length === 0) checkDelay(o, check);
  if (wrong.length > 0) throw new TypeError(`idempotent client: ${wrong.join("; ")}`);
  return Object.freeze({ ...o, methods: [...o.methods], fetch: o.fetch ?? ((url, init) => globalThis.fetch(url, init)) });
}

function checkBudget(budget, check) {
  if (budget === null || typeof budget !== "object") {
    check(false, "budget is not an object");
    return;
  }
  for (const name of Object.keys(budget)) check(["off", "share", "burst"].includes(name), `budget has no ${name}`);
  const { off = false, share, burst } = budget;
  check(!off || (share === undefined && burst === undefined), "budget is off, but has a share or a burst");
  check(share === undefined || (share >= 0 && share <= 1), `budget.share is ${quote(share)}, want 0 to 1`);
  check(burst === undefined || (Number.isInteger(burst) && burst >= 0), `budget.burst is ${quote(burst)}, want a number from 0`);
}

/** Tries the law of delays once, since what is no number would only be seen when a request has to be repeated. */
function checkDelay({ backoff, random }, check) {
  const delay = backoff(0, random());
  check(Number.isFinite(delay) && delay >= 0, `backoff gives ${quote(delay)}, want a number of milliseconds`);
}

/** Whether a method is safe (RFC 9110, section 9.2.1), so that it may be repeated without a key. */
export function isSafe(method) {
  return ["GET", "HEAD", "OPTIONS", "TRACE"].includes(method);
}

/** Whether a value is an address, which may be relative to the request's. */
function isAddress(value) {
  try {
    return Boolean(new URL(value, "https://relative.invalid")) && (typeof value === "string" || value instanceof URL);
  } catch {
    return false;
  }
}

/** Whether a value is an origin as redirects are compared with it, such as "https://api.example". */
const isOrigin = (value) => isAddress(value) && new URL(value, "https://relative.invalid").origin === value;

/** A page may forbid even to look at what it was given. */
function hasMethod(object, name) {
  try {
    return typeof object[name] === "function";
  } catch {
    return true;
  }
}

const isToken = (text) => typeof text === "string" && /^[!#$%&'*+\-.^_`|~0-9A-Za-z]+$/.test(text); // RFC 9110, section 5.6.2
const lower = (text) => (typeof text === "string" ? text.toLowerCase() : text);
const quote = (value) => (typeof value === "string" ? `"${value}"` : String(value));
