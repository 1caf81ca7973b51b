import { clientOf } from "./client.js";
import { exchange } from "./exchange.js";

export { attempts } from "./attempts.js";
export { budget } from "./budget.js";
export { operations } from "./operations.js";
export { polling } from "./polling.js";
export { adyen, draft07, inBody, paypal, square, stripe } from "./dialects.js";
export { IdempotencyError } from "./errors.js";
export { untilOnline } from "./online.js";
export { fullJitter } from "./backoff.js";
export { newKey } from "./key.js";

/** Returns a client for pages and workers, where the platform follows redirects, by the rules of CORS. */
export const createClient = (options) => clientOf(send, options);

/** Elsewhere a key is led nowhere. */
const send = (call, url, init) =>
  exchange(call, url, call.key && !globalThis.location ? { ...init, redirect: "error" } : init);
