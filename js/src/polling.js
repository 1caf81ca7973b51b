import { isWorth, judge } from "./classify.js";
import { sleep, untilOnline } from "./limit.js";
import { fill, isSafe, isTime, urlOf } from "./options.js";
import { follow } from "./redirect.js";
import { retryAfter } from "./retryafter.js";

const defaultEvery = 1000; // milliseconds

const known = {
  statusURL: [(v) => (typeof v === "string" || v instanceof URL) && urlOf(v, "http://relative")],
  pollEvery: [isTime, 0],
};

/**
 * Asks about operations, in place of sending their requests again: about that of a 202, until it has ended, and, under the key,
 * after an answer was lost. Throws a TypeError that says what is wrong with the options.
 */
export function polling(given = {}) {
  const { statusURL, pollEvery } = fill(known, given);
  const statusAt = ({ keyed, url }) => (keyed ? within(statusURL, url, url) : undefined);

  /** The end of a call whose attempt was answered with a 202 that says where to ask; undefined if it was not. */
  async function followed(call, reply) {
    const { response } = reply;
    if (!pollEvery || isSafe(call.method) || response?.status !== 202) return undefined;
    const url = within(response.headers.get("Location"), response.url || call.url, call.url);
    return url && poll(call, "request", reply, url);
  }

  /** Whether to ask before there is another attempt: it is open whether this one had an effect. */
  function helps(call, { failed, response, document }) {
    const lost = failed || response.status === 504 || document?.code === "IDEMPOTENCY_OUTCOME_PENDING";
    return lost && statusAt(call) !== undefined;
  }

  /** The reply about a call's operation; undefined if that was never seen, nothing is kept of it, or nobody knows of it. */
  async function ask(call) {
    const url = statusAt(call);
    let kind = "status";
    let reply = await question(call, url, call.text);
    if (running(reply)) {
      reply = await poll(call, kind, reply, url, call.text);
      kind = "poll";
    } else if (told(reply) && !nothingKept(reply)) {
      call.report(kind, reply);
      return ended(call, reply);
    }
    if (reply.ended || reply.failed || isWorth(reply)) return reply;
    call.report(kind, reply, 0);
    call.state = call.code = undefined;
    return undefined;
  }

  /**
   * Asks about an operation until it has ended, beginning with an answer that says that it has not. Questions that fail are
   * asked again as often in a row as a request would be. What it returns is the end of the call, and reported; but not if it was
   * asked by key and nothing is kept.
   */
  async function poll(call, kind, reply, url, text) {
    const o = call.options;
    let failures = 0;
    for (;;) {
      const now = Date.now();
      let delay = pollEvery || defaultEvery;
      if (failures > 0) delay = Math.max(delay, o.backoff(failures - 1, o.random()));
      if (!reply.failed) {
        const asked = retryAfter(reply.response.status, reply.response.headers, now);
        if (asked > 0) delay = Math.min(asked, o.maxRetryAfter);
        note(call, reply);
      }
      if (failures >= o.maxAttempts) call.reason = "attempts";
      else call.reason = call.tooLate(now + delay);
      call.report(kind, reply, call.reason ? undefined : delay);
      if (call.reason) return { ...reply, ended: true };
      await sleep(delay, call.signal);
      const network = !o.waitOnline || (await untilOnline(call.signal));

      kind = "poll";
      reply = await question(call, url, text);
      if (running(reply)) {
        failures = 0;
      } else if (isWorth(reply)) {
        if (network || !reply.failed) failures++;
      } else if (text !== undefined && nothingKept(reply)) {
        return reply;
      } else {
        call.report(kind, reply);
        return ended(call, reply);
      }
    }
  }

  return { statusURL, followed, helps, ask, note };
}

/** An address, which may be relative, if it is of the request's own origin: no other is asked. */
function within(address, base, { origin }) {
  const url = address ? urlOf(address, base) : undefined;
  return url?.origin === origin ? url : undefined;
}

/** The request's headers that a question does not have: those about a body, conditions and ranges, and preferences. */
const notAsked = /^(content-|if-)|^(prefer|expect|range)$|digest$/;

/** Asks about an operation, by key if there is a text of one. */
async function question(call, url, text) {
  const headers = new Headers([...call.headers].filter(([name]) => !notAsked.test(name)));
  headers.delete(call.options.header);
  if (text !== undefined) headers.set(call.options.header, text);
  const { body, integrity, keepalive, ...init } = call.init;
  // In a page the platform follows redirects.
  const stays = globalThis.location && (call.own ? { mode: "same-origin" } : { redirect: "error" });
  const reply = await follow(call, url, { ...init, method: "GET", headers, cache: "no-store", ...stays }, true);
  reply.verdict = await judge(call, reply, true);
  return reply;
}

/** Makes an answer about the operation that of the call. */
function note(call, reply) {
  const { failed, response, document } = reply;
  reply.nothingKept = nothingKept(reply);
  if (!failed) call.last = reply;
  call.state = running(reply) ? "running" : document?.state;
  // Where who should know did not tell, the outcome is as open as before.
  call.code = response?.status >= 400 ? "IDEMPOTENCY_OUTCOME_PENDING" : codes[call.state];
}

function ended(call, reply) {
  note(call, reply);
  reply.ended = true;
  return reply;
}

/** The codes that states stand for which leave the outcome open. */
const codes = {
  running: "IDEMPOTENCY_IN_PROGRESS",
  unknown: "IDEMPOTENCY_OUTCOME_UNKNOWN",
  expired: "IDEMPOTENCY_KEY_EXPIRED",
};

/** Whether an answer about an operation says that it has not ended: 202, or the state running. */
const running = ({ response, document }) => response?.status === 202 || (response?.status === 200 && document?.state === "running");

/** Whether an answer about an operation tells its state. */
const told = ({ response, document }) => response?.status < 300 && Boolean(document?.state);

/**
 * Whether an answer about an operation says that it has failed and nothing is kept of it, so that its key may be sent again as
 * if it had never been seen.
 */
const nothingKept = (reply) => told(reply) && reply.document.state === "failed" && reply.document.retryable === true;
