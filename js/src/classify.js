import { mediaOf } from "./document.js";
import { responseOf } from "./exchange.js";
import { deltaOrDate } from "./retryafter.js";

/** Whether a code is one of the guard's: its problem is no answer of the operation. */
export const isGuards = (code) => code?.startsWith("IDEMPOTENCY_");

/** The guard's codes after which the same request under the same key may fare better, unless the problem says that it may not. */
const again = /^IDEMPOTENCY_(OUTCOME_PENDING|TOO_MANY_(ATTEMPTS|KEYS)|EARLY_DATA|STORE_UNAVAILABLE|NO_ANSWER)$/;

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
    if (code === "IDEMPOTENCY_IN_PROGRESS") return "in-progress";
    return again.test(code) && !(code.endsWith("NO_ANSWER") && document.retryable === false) ? "retry" : "refused";
  }
  const { classify, dialect } = call.options;
  for (const say of question ? [] : [classify, dialect?.classify]) {
    const told = await say?.(responseOf(reply), call.maybe);
    if (told) return told;
  }
  const { status, headers } = response;
  if (document?.retryable !== false && !isKept(headers)) {
    if ([408, 425, 429, 500, 502, 503, 504].includes(status)) return "retry";
    if (status === 409 && call.keyed && isInProgress(headers, document)) return "in-progress";
  }
  return call.keyed && !question && isOpen(call, reply) ? "unknown" : "answer";
}

/** Whether a reply is worth another attempt, or another question. */
export const isWorth = ({ verdict }) => ["retry", "in-progress"].includes(verdict);

const isKept = (headers) => headers.get("Idempotency-Retryable")?.toLowerCase() === "false";

/** Whether an answer was given before. */
export const replayed = (headers) => headers.get("Idempotent-Replayed") === "true";

/**
 * Whether an answer leaves open what became of the operation. Whatever stands between may answer with any 5xx after it has
 * passed the request on, and so may a server that has failed halfway. And once an earlier attempt may have arrived, what is
 * said before the key is looked at, or by somebody else, says nothing of that one: a login that is asked for, a refusal whose
 * code is not known, an answer to which a redirect has led. Only what a guard marks is about the operation.
 */
function isOpen({ maybe, headers: sent }, { response: { status, headers }, moved }) {
  if (isKept(headers) || replayed(headers)) return false;
  const page = mediaOf(headers).includes("html") && mediaOf(sent).includes("json"); // such as a login's
  if (status >= 500 || (page && status < 400)) return true;
  if (!maybe || headers.has("Idempotency-Retryable")) return false;
  return page || moved || [400, 401, 403, 407, 409, 417, 422].includes(status);
}

/**
 * Whether a 409 means that the same call is being worked on, and not a conflict of the application's, which repeating can't
 * solve. Servers that don't say so in a problem say when to come again.
 */
function isInProgress(headers, document) {
  const told = document?.type?.endsWith("request-in-progress") || document?.retryable === true;
  return told || deltaOrDate(headers, Date.now()) !== undefined;
}
