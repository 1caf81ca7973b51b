/** The codes of the guard's problems, and of the client's own refusal to send a body that it could not send again. */
export const Code = Object.freeze({
  keyMissing: "IDEMPOTENCY_KEY_REQUIRED",
  keyInvalid: "IDEMPOTENCY_KEY_INVALID",
  scopeInvalid: "IDEMPOTENCY_SCOPE_INVALID",
  keyReused: "IDEMPOTENCY_KEY_REUSED",
  inProgress: "IDEMPOTENCY_IN_PROGRESS",
  outcomePending: "IDEMPOTENCY_OUTCOME_PENDING",
  outcomeUnknown: "IDEMPOTENCY_OUTCOME_UNKNOWN",
  replayUnavailable: "IDEMPOTENCY_REPLAY_UNAVAILABLE",
  noAnswer: "IDEMPOTENCY_NO_ANSWER",
  keyExpired: "IDEMPOTENCY_KEY_EXPIRED",
  replayForbidden: "IDEMPOTENCY_REPLAY_FORBIDDEN",
  tooManyAttempts: "IDEMPOTENCY_TOO_MANY_ATTEMPTS",
  tooManyKeys: "IDEMPOTENCY_TOO_MANY_KEYS",
  bodyTooLarge: "IDEMPOTENCY_BODY_TOO_LARGE",
  digestMismatch: "IDEMPOTENCY_DIGEST_MISMATCH",
  earlyData: "IDEMPOTENCY_EARLY_DATA",
  storeUnavailable: "IDEMPOTENCY_STORE_UNAVAILABLE",
  requestUnreadable: "IDEMPOTENCY_REQUEST_UNREADABLE",
  bodyConsumed: "IDEMPOTENCY_BODY_CONSUMED",
  operationNotFound: "IDEMPOTENCY_OPERATION_NOT_FOUND",
  bodyNotRepeatable: "BODY_NOT_REPEATABLE",
});

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
  constructor({ code, reason, attempts = 0, retryAt, response, problem, key, cause, detail }) {
    super(message({ code, reason, attempts, retryAt, response, cause, detail }), cause === undefined ? undefined : { cause });
    this.name = "IdempotencyError";
    this.code = code;
    this.reason = reason;
    this.attempts = attempts;
    this.retryAt = retryAt;
    this.problem = problem;
    // Whoever logs an error logs its enumerable properties: neither key nor answer belongs there.
    Object.defineProperty(this, "key", { value: key });
    Object.defineProperty(this, "response", { value: response });
  }
}

function message({ code, reason, attempts, retryAt, response, cause, detail }) {
  let text = `idempotent call, ${attempts} sent`;
  if (reason) {
    text += `: retries exhausted by ${reason}`;
    if (retryAt) text += `, to come again at ${retryAt.toISOString()}`;
  }
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
