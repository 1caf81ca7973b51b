import { responseOf } from "./exchange.js";
import { hide } from "./hide.js";

/** The end of a call without the operation's own answer. */
export class IdempotencyError extends Error {
  constructor(call) {
    const { key, attempts = 0, response, problem, code, reason, retryAt, error: cause, detail } = call;
    // Node.js says only "fetch failed", and what did is the cause of that.
    const told = [reason && `ended by ${reason}`, response?.status, code, detail, why(cause), why(cause?.cause)];
    super(`idempotent call, ${attempts} sent: ${told.filter(Boolean).join(": ")}`, cause && { cause });
    Object.assign(this, { name: "IdempotencyError", code, reason, attempts, retryAt, problem });
    // Whoever logs an error logs its enumerable properties: neither key nor answer belongs there.
    hide(this, { key, response: response && responseOf(call) });
  }
}

const why = (error) => error?.message || error?.code;

/** Refuses a key that can't be sent. */
export function invalid(detail) {
  throw new IdempotencyError({ code: "IDEMPOTENCY_KEY_INVALID", detail });
}
