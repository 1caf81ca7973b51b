import { fullJitter } from "./backoff.js";
import { bound } from "./budget.js";
import { inHeader, randomUUID } from "./key.js";

/** Each option's default, and what it has to be, see fill. */
export const known = {
  fetch: [(url, init) => fetch(url, init)],
  dialect: [{}],
  field: [inHeader],
  classify: [() => {}],
  polling: [{ ask: (call, attempt) => attempt() }, (v) => v.ask],
  header: ["Idempotency-Key", (v) => new Headers({ [v]: "" })],
  bare: [false],
  correlationHeader: [undefined, (v, o) => v == null || [...new Headers({ [v]: "", [o.header]: "" })][1]],
  methods: [["POST", "PATCH"], (v) => v.every((m) => m.trim().toUpperCase() === m && !isSafe(m))],
  keyFor: [randomUUID],
  maxAttempts: [4, Boolean],
  maxAge: [864e5, Boolean],
  backoff: [fullJitter(100, 30_000), (v) => v(0, 0) >= 0], // else it would only be seen when a request is repeated
  random: [Math.random],
  maxRetryAfter: [60_000],
  budget: [bound(0.1, 10), (v) => v()() >= 0],
  attemptTimeout: [30_000],
  waitOnline: [() => true],
  crossOrigin: [[], (v) => v.every((origin) => new URL(origin).origin === origin)],
  attempts: [{ tell() {} }, (v) => v.tell],
};

/** Whether a method is safe (RFC 9110, section 9.2.1), so that it may be repeated without a key. */
export const isSafe = (method) => /^(GET|HEAD|OPTIONS|TRACE)$/.test(method);

/** Whether a request is of the page's own origin, or there is no page. */
export const isOwn = ({ url }) => !globalThis.location || url.origin === location.origin;
