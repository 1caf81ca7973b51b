import { responseOf } from "./exchange.js";
import { hide } from "./hide.js";

/** The end of a call without the operation's own answer. */
export class IdempotencyError extends Error {
  constructor(call) {
    const { attempts = 0, code, reason, retryAt, problem, key, response, detail, error: cause } = call;
    // Node.js says only "fetch failed", and what did is the cause of that.
    const told = [reason && `ended by ${reason}`, response?.status, code, detail, why(cause), why(cause?.cause)];
    super(`idempotent call, ${attempts} sent: ${told.filter(Boolean).join(": ")}`, cause && { cause });
    Object.assign(this, { name: "IdempotencyError", attempts, code, reason, retryAt, problem });
    // Whoever logs an error logs its enumerable properties: neither key nor answer belongs there.
    hide(this, { key, response: response && responseOf(call) });
  }
}

const why = (error) => error?.message || error?.code;

/** Refuses a key that can't be sent. */
export function invalid(detail) {
  throw new IdempotencyError({ code: "IDEMPOTENCY_KEY_INVALID", detail });
}
