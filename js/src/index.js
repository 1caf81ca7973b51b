export { createClient } from "./client.js";
export { Code, IdempotencyError, Reason } from "./errors.js";
export { additiveJitter, fullJitter } from "./backoff.js";
export { newKey } from "./key.js";
