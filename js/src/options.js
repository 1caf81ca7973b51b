import { fullJitter } from "./backoff.js";

const none = undefined;

const defaults = {
  fetch: none,
  storage: none,
  storagePrefix: "semel:",
  scope: none,
  lock: true,
  dialect: none,
  classify: none,
  header: "Idempotency-Key",
  bare: false,
  correlationHeader: none,
  methods: ["POST", "PATCH"],
  keyFor: none,
  maxAttempts: 4,
  maxAge: 24 * 3600 * 1000,
  backoff: fullJitter(100, 30_000),
  random: Math.random,
  maxRetryAfter: 60_000,
  budget: {},
  attemptTimeout: 30_000,
  waitOnline: true,
  pollEvery: 0,
  statusURL: none,
  crossOrigin: [],
  onAttempt: none,
  onWarning: (warning) => console.warn(`idempotent calls: ${warning.message}`, warning.error ?? ""),
};

/** What an option has to be, where that is not to be of the default's type, or a function. */
const wanted = {
  storage: (v) => v === null || ["getItem", "setItem", "removeItem"].every((name) => hasMethod(v, name)),
  scope: (v) => isText(v) && v !== "",
  dialect: (v) => typeof v === "object",
  header: isToken,
  correlationHeader: (v) => v === null || isToken(v),
  methods: (v) => Array.isArray(v) && v.every((m) => isToken(m) && m === m.toUpperCase() && !isSafe(m)),
  maxAttempts: (v) => Number.isInteger(v) && v > 0,
  maxAge: (v) => isTime(v) && v > 0,
  budget: isBudget,
  statusURL: (v) => (isText(v) || v instanceof URL) && isAddress(v),
  crossOrigin: (v) => Array.isArray(v) && v.every((origin) => isAddress(origin) && new URL(origin, away).origin === origin),
};

function holds(name, value) {
  const kind = typeof (defaults[name] ?? isToken);
  return name in wanted ? wanted[name](value) : kind === "number" ? isTime(value) : typeof value === kind;
}

/** Fills in the defaults, or throws a TypeError that says all that is wrong. */
export function compile(given) {
  const { field, classify: _, ...spoken } = Object(given.dialect);
  const wrong = [];
  const o = { ...defaults, field };
  for (const [name, value] of [...Object.entries(spoken), ...Object.entries(given)]) {
    const known = name in defaults;
    if (value === none && known) continue;
    if (!known) wrong.push(`there is no option ${name}`);
    else if (!holds(name, value)) wrong.push(`${name} is not what it has to be: ${isText(value) ? `"${value}"` : String(value)}`);
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
