import { clientOf } from "./client.js";
import { follow } from "./redirect.js";

export { attempts } from "./attempts.js";
export { budget } from "./budget.js";
export { operations } from "./operations.js";
export { polling } from "./polling.js";
export { adyen, draft07, inBody, paypal, square, stripe } from "./dialects.js";
export { IdempotencyError } from "./errors.js";
export { untilOnline } from "./online.js";
export { fullJitter } from "./backoff.js";
export { newKey } from "./key.js";

/** Returns a client that can be used anywhere. */
export const createClient = (options) => clientOf(follow, options);
