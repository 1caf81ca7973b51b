import { isWorth, judge } from "./classify.js";
import { parseObject } from "./document.js";
import { fill } from "./fill.js";
import { encode } from "./key.js";
import { isOwn, isSafe } from "./options.js";
import { retryAfter } from "./retryafter.js";
import { sleep } from "./wait.js";

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
   * Makes an attempt of a call, or asks about its operation. Reports whether to send the request once more: because
   * that was never seen, nothing is kept of it, or nobody knows of it.
   */
  async function ask(call, attempt, tooLate) {
    if (!call.asks) {
      await attempt();
      const { error, response, bytes, problem } = call;
      const accepted = pollEvery && !error && !isSafe(call.method) && response.status === 202;
      const at = accepted && near(call, response.headers.get("Location"), response.url);
      if (at) {
        read(call);
        return poll(call, tooLate, at);
      }
      // It is open whether it had an effect.
      const lost = error || response.status === 504 || problem?.code === "IDEMPOTENCY_OUTCOME_PENDING";
      const url = lost && call.key && near(call, statusURL);
      call.asks = url && { url, last: { response, bytes, problem } };
      return false;
    }
    const { url, last } = call.asks;
    const text = call.headers.get(call.options.header) ?? encode(call.key.value, call.options.bare);
    await question(Object.assign(call, last), "status", url, text);
    const runs = call.state === "running";
    const known = runs || told(call);
    if (runs) await poll(call, tooLate, url, text);
    if (call.error || call.reason || isWorth(call) || (known && !call.nothingKept)) return false;
    call.options.attempts.tell(call, 0);
    Object.assign(call, { asks: undefined, kind: undefined, state: undefined, nothingKept: false });
    return true;
  }

  /**
   * Asks about an operation until it has ended, beginning with an answer that says that it has not. Questions that fail
   * are asked again as often in a row as a request would be.
   */
  async function poll(call, tooLate, url, text) {
    const { backoff, random, maxRetryAfter, maxAttempts } = call.options;
    let failures = 0;
    for (;;) {
      const now = Date.now();
      let delay = pollEvery || 1000;
      if (failures) delay = Math.max(delay, backoff(failures - 1, random()) || 0);
      if (!call.error) {
        const asked = retryAfter(call.response, now);
        if (asked > 0) delay = Math.min(asked, maxRetryAfter);
      }
      call.reason = failures >= maxAttempts ? "attempts" : tooLate(now + delay);
      if (call.reason) {
        call.verdict = undefined;
        return;
      }
      call.options.attempts.tell(call, delay);
      await sleep(call.limit, delay);
      const network = await call.options.waitOnline(call.limit);
      await question(call, "poll", url, text);
      if (call.state === "running") failures = 0;
      else if (!isWorth(call)) return;
      else if (network || !call.error) failures++;
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
  const { key, options } = call;
  const headers = new Headers([...call.headers].filter(([name]) => !notAsked.test(name)));
  headers.delete(options.header);
  if (text !== undefined) headers.set(options.header, text);
  const { body, integrity, keepalive, ...init } = call.init;
  // In a page the platform follows redirects. Elsewhere it is led to no other origin, as if it had a key.
  const stays = globalThis.location && (isOwn(call) ? { mode: "same-origin" } : { redirect: "error" });
  const plain = { ...options, crossOrigin: [], classify: undefined, dialect: {} };
  const asked = { ...call, headers, key: true, maybe: false, error: undefined, options: plain };
  const started = Date.now();
  const reply = await options.send(asked, url, { ...init, method: "GET", headers, cache: "no-store", ...stays });
  const verdict = await judge({ ...asked, key, ...reply });
  const { error } = reply;
  read(Object.assign(call, error ? {} : reply, { error, started, kind, verdict }), true);
}

/** The codes of states that leave the outcome open. */
const codes = {
  running: "IDEMPOTENCY_IN_PROGRESS",
  unknown: "IDEMPOTENCY_OUTCOME_UNKNOWN",
  expired: "IDEMPOTENCY_KEY_EXPIRED",
};

/** Reads what the last answer of a call says of its operation. */
function read(call, asked) {
  const { status, headers } = call.error ? {} : call.response;
  const tells = asked && status < 300 && /^[^;]*[/+]json\b/i.test(headers.get("Content-Type"));
  const { state, retryable } = (tells ? parseObject(new TextDecoder().decode(call.bytes)) : call.problem) ?? {};
  if (status === 202 || (status === 200 && state === "running")) call.state = "running";
  else call.state = typeof state === "string" ? state : undefined;
  // Where who should know did not tell, the outcome is as open as before.
  call.code = status >= 400 ? "IDEMPOTENCY_OUTCOME_PENDING" : codes[call.state];
  // Its key may be sent again as if it had never been seen.
  call.nothingKept = !!told(call) && state === "failed" && retryable === true;
}

/** Whether an answer about an operation tells its state. */
const told = ({ error, response, state }) => !error && response.status < 300 && state;
