import { Code } from "./errors.js";
import { deltaOrDate } from "./retryafter.js";

/** Says of the guard's codes whether the same request under the same key may fare better. */
const again = new Map([
  [Code.inProgress, true],
  [Code.outcomePending, true],
  [Code.tooManyAttempts, true],
  [Code.tooManyKeys, true],
  [Code.earlyData, true],
  [Code.storeUnavailable, true],
  [Code.noAnswer, true], // unless the problem says that it may not

  [Code.keyMissing, false],
  [Code.keyInvalid, false],
  [Code.scopeInvalid, false],
  [Code.keyReused, false],
  [Code.outcomeUnknown, false],
  [Code.replayUnavailable, false],
  [Code.keyExpired, false],
  [Code.replayForbidden, false],
  [Code.bodyTooLarge, false],
  [Code.digestMismatch, false],
  [Code.requestUnreadable, false],
  [Code.bodyConsumed, false],
  [Code.operationNotFound, false],
]);

/** Whether a code is one of the guard's: its problem is no answer of the operation. */
export const isGuards = (code) => again.has(code);

/**
 * Whether a response is worth another attempt. The code of one of the guard's own problems decides, since a server
 * may give it another status; then what the server says in so many words; then the status.
 */
export function retryable(status, headers, document, keyed) {
  const known = again.get(document?.code);
  if (known !== undefined) return known && !(document.code === Code.noAnswer && document.retryable === false);
  if (document?.retryable === false) return false;
  if (kept(headers)) return false;
  switch (status) {
    case 408:
    case 425:
    case 429:
    case 500:
    case 502:
    case 503:
    case 504:
      return true;
    case 409:
      return keyed && inProgress(headers, document);
  }
  return false;
}

/** Whether an answer is said to be kept, so that it will only be replayed. */
const kept = (headers) => headers.get("Idempotency-Retryable")?.toLowerCase() === "false";

/** Whether an answer was given before. */
export const replayed = (headers) => headers.get("Idempotent-Replayed") === "true";

/**
 * Whether an answer leaves open what became of the operation. Whatever stands between may answer with any 5xx after it has
 * passed the request on, and so may a server that has failed halfway; only one that is kept, or replayed, will stay.
 */
export const open = ({ status, headers }) => status >= 500 && !kept(headers) && !replayed(headers);

/**
 * Whether a 409 means that the same call is being worked on, and not a conflict of the application's, which repeating can't
 * solve. Servers that don't say so in a problem say when to come again.
 */
function inProgress(headers, document) {
  if (document?.type?.endsWith("request-in-progress") || document?.retryable === true) return true;
  return deltaOrDate(headers, Date.now()) !== undefined;
}

/** Whether an answer leaves open whether there was an effect, so that asking about the operation is of use. */
export function lost(status, document) {
  return status === 504 || document?.code === Code.outcomePending;
}

/** Whether an answer about an operation says that it has not ended: 202, or the state running. */
export function running({ response, document }) {
  return response !== undefined && (response.status === 202 || (response.status === 200 && document?.state === "running"));
}

/**
 * Whether an answer about an operation says that it has failed and nothing is kept of it, so that its key may be sent again as
 * if it had never been seen.
 */
export function nothingKept(reply) {
  return told(reply) && reply.document.state === "failed" && reply.document.retryable === true;
}

/** Whether an answer about an operation tells its state. */
export function told({ response, document }) {
  return response?.status < 300 && Boolean(document?.state);
}

/** The code that the state of an operation stands for, undefined if it has ended. */
export function codeOfState(state) {
  switch (state) {
    case "running":
      return Code.inProgress;
    case "unknown":
      return Code.outcomeUnknown;
    case "expired":
      return Code.keyExpired;
    case refused:
      return Code.outcomePending;
  }
  return undefined;
}

/** The state of an operation about which who should know did not tell. */
export const refused = "refused";
