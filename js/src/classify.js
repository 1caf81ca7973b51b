import { replayed, responseOf } from "./exchange.js";
import { retryAfter } from "./retryafter.js";

/**
 * The guard's codes after which the same request under the same key may fare better, unless the problem says that it
 * may not: outcome pending, too many attempts or keys, early data, store unavailable, no answer.
 */
const again = /OUTCOME_PENDING|TOO_MANY|EARLY|STORE|NO_ANSWER/;

/**
 * What the last answer to a call's request comes to: "retry"; "in-progress"; "reused", the key is another
 * request's; "unknown", it leaves open what became of the operation; or none of these: it is the operation's own, or
 * refused for good, by the guard, with its code, or by the network. The guard's code goes first, since a server may
 * give it another status; then what the caller says; then the dialect; then the rules for every server.
 */
export async function judge(call) {
  const { options, key, maybe, response, problem } = call;
  if (call.error) return call.limit.aborted || call.final ? undefined : "retry";
  const { code, retryable, type } = problem ?? {};
  if (/^IDEMPOTENCY_/.test(code)) {
    call.code = code;
    if (code === "IDEMPOTENCY_IN_PROGRESS") return "in-progress";
    return retryable !== false && again.test(code) ? "retry" : undefined;
  }
  for (const say of new Set([options.classify, options.dialect.classify])) {
    const told = await say?.(responseOf(call), maybe);
    if (told) return told;
  }
  const { status, headers } = response;
  const mark = headers.get("Idempotency-Retryable");
  const kept = /^false$/i.test(mark);
  if (retryable !== false && !kept) {
    if (/408|425|429|50[0234]/.test(status)) return "retry";
    // A conflict of the application's can't be solved by repeating. Servers without problems say when to come again.
    const runs =
      retryable || /request-in-progress$/.test(type) || (headers.has("Retry-After") && retryAfter(response, 0) >= 0);
    if (status === 409 && key && runs) return "in-progress";
  }
  // Only what a guard marks is about the operation. Whatever stands between may answer with any 5xx after it has passed
  // the request on, and so may a server that has failed halfway. And once an earlier attempt may have arrived, what is
  // said before the key is looked at, or by somebody else, says nothing of that one: a login that is asked for, a
  // refusal whose code is not known, an answer to which a redirect has led.
  if (!key || kept || replayed(response)) return undefined;
  const page = /html/i.test(headers.get("Content-Type")) && /json/i.test(call.headers.get("Content-Type")); // a login's
  const open =
    status > 499 ||
    (page && status < 400) ||
    (maybe && mark === null && (page || call.redirected || /40[01379]|417|422/.test(status)));
  return open ? "unknown" : undefined;
}

/** Whether an answer is worth another attempt, or another question. */
export const isWorth = ({ verdict }) => /^(retry|in-progress)$/.test(verdict);
