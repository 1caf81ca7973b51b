import { responseOf } from "./exchange.js";
import { retryAfter } from "./retryafter.js";

/**
 * The guard's codes after which the same request under the same key may fare better, unless the problem says that it
 * may not.
 */
const again = /^IDEMPOTENCY_(OUTCOME_PENDING|TOO_MANY_\w+|EARLY_DATA|STORE_UNAVAILABLE|NO_ANSWER)$/;

/**
 * What a reply to a request comes to: "answer", the operation's own; "retry"; "in-progress"; "reused", the key
 * is another request's; "unknown", it leaves open what became of the operation; or "refused", by the guard, or by the
 * network for good. The guard's code goes first, since a server may give it another status; then what the caller says;
 * then the dialect; then the rules for every server.
 */
export async function judge({ limit, options, key, maybe, headers: sent }, reply, question) {
  const { final, response, document, moved } = reply;
  if (!response) return limit.aborted || final ? "refused" : "retry";
  const { code, retryable, type } = document ?? {};
  if (code === "IDEMPOTENCY_IN_PROGRESS") return "in-progress";
  if (/^IDEMPOTENCY_/.test(code)) {
    reply.code = code;
    return retryable !== false && again.test(code) ? "retry" : "refused";
  }
  for (const say of question ? [] : [options.classify, options.dialect.classify]) {
    const told = await say?.(responseOf(reply), maybe);
    if (told) return told;
  }
  const { status, headers } = response;
  const mark = headers.get("Idempotency-Retryable");
  const kept = /^false$/i.test(mark);
  if (retryable !== false && !kept) {
    if (/^(408|425|429|50[0234])$/.test(status)) return "retry";
    // A conflict of the application's can't be solved by repeating. Servers without problems say when to come again.
    const runs =
      retryable || /request-in-progress$/.test(type) || (headers.has("Retry-After") && retryAfter(response, 0) >= 0);
    if (status === 409 && key && runs) return "in-progress";
  }
  // Only what a guard marks is about the operation. Whatever stands between may answer with any 5xx after it has passed
  // the request on, and so may a server that has failed halfway. And once an earlier attempt may have arrived, what is
  // said before the key is looked at, or by somebody else, says nothing of that one: a login that is asked for, a
  // refusal whose code is not known, an answer to which a redirect has led.
  if (!key || question || kept || replayed(headers)) return "answer";
  const page = /html/i.test(headers.get("Content-Type")) && /json/i.test(sent.get("Content-Type")); // such as a login's
  const open =
    status > 499 ||
    (page && status < 400) ||
    (maybe && mark === null && (page || moved || /^4(0[01379]|17|22)$/.test(status)));
  return open ? "unknown" : "answer";
}

/** Whether a reply is worth another attempt, or another question. */
export const isWorth = ({ verdict }) => /^(retry|in-progress)$/.test(verdict);

/** Whether an answer was given before. */
export const replayed = (headers) => headers.get("Idempotent-Replayed") === "true";
