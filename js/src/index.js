export { createClient } from "./client.js";
export { operations } from "./operations.js";
export { polling } from "./polling.js";
export { adyen, draft07, inBody, paypal, square, stripe } from "./dialects.js";
export { IdempotencyError } from "./errors.js";
export { fullJitter } from "./backoff.js";
export { newKey } from "./key.js";
