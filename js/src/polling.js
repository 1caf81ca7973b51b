import { isWorth, judge } from "./classify.js";
import { fill } from "./fill.js";
import { encode } from "./key.js";
import { isSafe } from "./options.js";
import { retryAfter } from "./retryafter.js";
import { untilOnline, within } from "./wait.js";

const known = {
  statusURL: [undefined, (v) => v == null || new URL(v, "http://relative")],
  pollEvery: [0],
};

/**
 * Asks about operations, in place of sending their requests again: about that of a 202, until it has ended, and, under
 * the key, after an answer was lost. Throws a TypeError that says what is wrong with the options.
 */
export function polling(given = {}) {
  const { statusURL, pollEvery } = fill(known, given);

  /**
   * The reply to an attempt of a call, or about its operation; undefined if that was never seen, nothing is kept of it,
   * or nobody knows of it.
   */
  async function ask(call, attempt) {
    if (!call.asks) {
      const reply = await attempt();
      const { response, document } = reply;
      const at =
        pollEvery &&
        !isSafe(call.method) &&
        response?.status === 202 &&
        near(call, response.headers.get("Location"), response.url);
      if (at) return poll(call, read(reply), at);
      // It is open whether it had an effect.
      const lost = !response || response.status === 504 || document?.code === "IDEMPOTENCY_OUTCOME_PENDING";
      call.asks = lost && call.key && near(call, statusURL);
      return reply;
    }
    const text = call.headers.get(call.options.header) ?? encode(call.key.value, call.options.bare);
    let reply = await question(call, "status", call.asks, text);
    const runs = reply.state === "running";
    const known = runs || told(reply);
    if (runs) reply = await poll(call, reply, call.asks, text);
    if (!reply.response || call.reason || isWorth(reply) || (known && !reply.nothingKept)) return reply;
    call.report(reply, 0);
    call.asks = undefined;
    return undefined;
  }

  /**
   * Asks about an operation until it has ended, beginning with an answer that says that it has not. Questions that fail
   * are asked again as often in a row as a request would be.
   */
  async function poll(call, reply, url, text) {
    const { backoff, random, maxRetryAfter, maxAttempts, waitOnline } = call.options;
    let failures = 0;
    for (;;) {
      const now = Date.now();
      let delay = pollEvery || 1000;
      if (failures) delay = Math.max(delay, backoff(failures - 1, random()));
      if (reply.response) {
        const asked = retryAfter(reply.response, now);
        if (asked > 0) delay = Math.min(asked, maxRetryAfter);
        call.last = reply;
      }
      call.reason = failures >= maxAttempts ? "attempts" : call.tooLate(now + delay);
      if (call.reason) return { ...reply, verdict: undefined };
      call.report(reply, delay);
      await within(call.limit, delay);
      const network = !waitOnline || (await untilOnline(call.limit));
      reply = await question(call, "poll", url, text);
      if (reply.state === "running") failures = 0;
      else if (!isWorth(reply)) return reply;
      else if (network || reply.response) failures++;
    }
  }

  return { statusURL, ask };
}

/** An address, which may be relative, if it is of the request's own origin: no other is asked. */
function near({ url }, address, base) {
  try {
    const at = new URL(address, base || url);
    return address && at.origin === url.origin ? at : undefined;
  } catch {
    return undefined;
  }
}

/** The request's headers that a question does not have: those about a body, conditions and ranges, and preferences. */
const notAsked = /^(content-|if-)|^(prefer|expect|range)$|digest$/;

/** Asks about an operation, by key if there is a text of one. */
async function question(call, kind, url, text) {
  const headers = new Headers([...call.headers].filter(([name]) => !notAsked.test(name)));
  headers.delete(call.options.header);
  if (text !== undefined) headers.set(call.options.header, text);
  const { body, integrity, keepalive, ...init } = call.init;
  // In a page the platform follows redirects.
  const stays = globalThis.location && (call.own ? { mode: "same-origin" } : { redirect: "error" });
  const reply = await call.send(call, url, { ...init, method: "GET", headers, cache: "no-store", ...stays }, true);
  reply.verdict = await judge(call, reply, true);
  return read(reply, kind);
}

/** The codes of states that leave the outcome open. */
const codes = {
  running: "IDEMPOTENCY_IN_PROGRESS",
  unknown: "IDEMPOTENCY_OUTCOME_UNKNOWN",
  expired: "IDEMPOTENCY_KEY_EXPIRED",
};

/** Reads what an answer says of the operation. */
function read(reply, kind) {
  const { status } = reply.response ?? {};
  const { state, retryable } = reply.document ?? {};
  reply.kind = kind;
  reply.state = status === 202 || (status === 200 && state === "running") ? "running" : state;
  // Where who should know did not tell, the outcome is as open as before.
  reply.code = status >= 400 ? "IDEMPOTENCY_OUTCOME_PENDING" : codes[reply.state];
  // Its key may be sent again as if it had never been seen.
  reply.nothingKept = told(reply) && state === "failed" && retryable === true;
  return reply;
}

/** Whether an answer about an operation tells its state. */
const told = ({ response, document }) => response?.status < 300 && document?.state;
