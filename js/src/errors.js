/** The codes of the guard's problems, and of the client's own refusal to send a body that it could not send again. */
export const Code = { keyMissing: "IDEMPOTENCY_KEY_REQUIRED" };
for (const name of (
  "keyInvalid,scopeInvalid,keyReused,inProgress,outcomePending,outcomeUnknown,replayUnavailable,noAnswer,keyExpired,replayForbidden," +
  "tooManyAttempts,tooManyKeys,bodyTooLarge,digestMismatch,earlyData,storeUnavailable,requestUnreadable,bodyConsumed,operationNotFound"
).split(",")) {
  Code[name] = `IDEMPOTENCY_${name.replace(/[A-Z]/g, "_$&").toUpperCase()}`;
}
Code.bodyNotRepeatable = "BODY_NOT_REPEATABLE";
Object.freeze(Code);

/** Why a call was not sent again although that was worth it. */
export const Reason = Object.freeze({
  attempts: "attempts",
  budget: "budget",
  deadline: "deadline",
  retention: "retention",
  retryAfter: "retry-after",
});

/** The end of a call without the operation's own answer. */
export class IdempotencyError extends Error {
  constructor(of) {
    super(message(of), of.cause === undefined ? undefined : { cause: of.cause });
    this.name = "IdempotencyError";
    this.code = of.code;
    this.reason = of.reason;
    this.attempts = of.attempts ?? 0;
    this.retryAt = of.retryAt;
    this.problem = of.problem;
    // Whoever logs an error logs its enumerable properties: neither key nor answer belongs there.
    for (const name of ["key", "response"]) Object.defineProperty(this, name, { value: of[name] });
  }
}

function message({ code, reason, attempts = 0, retryAt, response, cause, detail }) {
  let text = `idempotent call, ${attempts} sent`;
  if (reason) text += `: retries exhausted by ${reason}`;
  if (reason && retryAt) text += `, to come again at ${retryAt.toISOString()}`;
  if (cause !== undefined) return `${text}: ${told(cause)}`;
  if (detail) return `${text}: ${detail}`;
  if (response) text += `: ${response.status}`;
  return code ? `${text} ${code}` : text;
}

/** Node.js says only "fetch failed", and what did is the cause of that. */
function told(error) {
  const text = `${error?.message || error?.code || error}`;
  return error?.cause instanceof Error ? `${text}: ${told(error.cause)}` : text;
}
