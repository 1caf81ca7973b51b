import { Code } from "./errors.js";
import { responseOf } from "./exchange.js";
import { deltaOrDate } from "./retryafter.js";

/** The guard's codes after which the same request under the same key may fare better. */
const again = new Set([
  Code.inProgress,
  Code.outcomePending,
  Code.tooManyAttempts,
  Code.tooManyKeys,
  Code.earlyData,
  Code.storeUnavailable,
  Code.noAnswer, // unless the problem says that it may not
]);

/** Whether a code is one of the guard's: its problem is no answer of the operation. */
export const isGuards = (code) => code?.startsWith("IDEMPOTENCY_") ?? false;

/**
 * What a reply to a request comes to: "answer", the operation's own; "retry"; "in-progress"; "reused", the key is another
 * request's; "unknown", it leaves open what became of the operation; or "refused", by the guard, or by the network for good.
 * The guard's code goes first, since a server may give it another status; then what the caller says; then the dialect; then the
 * rules for every server.
 */
export async function judge(call, reply, question) {
  const { response, document } = reply;
  if (reply.failed) return call.signal.aborted || reply.final ? "refused" : "retry";
  const code = document?.code;
  if (isGuards(code)) {
    if (code === Code.inProgress) return "in-progress";
    return again.has(code) && !(code === Code.noAnswer && document.retryable === false) ? "retry" : "refused";
  }
  const { classify, dialect } = call.options;
  for (const say of question ? [] : [classify, dialect?.classify]) {
    const told = await say?.(responseOf(reply), call.maybe);
    if (told) return told;
  }
  if (document?.retryable !== false && !isKept(response.headers)) {
    if ([408, 425, 429, 500, 502, 503, 504].includes(response.status)) return "retry";
    if (response.status === 409 && call.keyed && isInProgress(response.headers, document)) return "in-progress";
  }
  return call.keyed && !question && isOpen(call, reply) ? "unknown" : "answer";
}

const isKept = (headers) => headers.get("Idempotency-Retryable")?.toLowerCase() === "false";

/** Whether an answer was given before. */
export const replayed = (headers) => headers.get("Idempotent-Replayed") === "true";

/**
 * Whether an answer leaves open what became of the operation. Whatever stands between may answer with any 5xx after it has
 * passed the request on, and so may a server that has failed halfway. And once an earlier attempt may have arrived, what is
 * said before the key is looked at, or by somebody else, says nothing of that one: a login that is asked for, a refusal whose
 * code is not known, an answer to which a redirect has led. Only what a guard marks is about the operation.
 */
function isOpen({ maybe, headers: sent }, { response, moved }) {
  const { status, headers } = response;
  if (isKept(headers) || replayed(headers)) return false;
  const page = isMedia(headers, "html") && isMedia(sent, "json"); // such as a login's
  if (status >= 500 || (page && status < 400)) return true;
  if (!maybe || headers.has("Idempotency-Retryable")) return false;
  return page || moved || [400, 401, 403, 407, 409, 417, 422].includes(status);
}

const isMedia = (headers, type) => (headers.get("Content-Type") ?? "").toLowerCase().split(";")[0].includes(type);

/**
 * Whether a 409 means that the same call is being worked on, and not a conflict of the application's, which repeating can't
 * solve. Servers that don't say so in a problem say when to come again.
 */
function isInProgress(headers, document) {
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
