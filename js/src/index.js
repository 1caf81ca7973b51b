export { createClient } from "./client.js";
export { adyen, draft07, paypal, square, stripe } from "./dialects.js";
export { Code, IdempotencyError, Reason } from "./errors.js";
export { fullJitter } from "./backoff.js";
export { newKey } from "./key.js";
