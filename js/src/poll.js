import { nothingKept, running } from "./classify.js";
import { Reason } from "./errors.js";
import { exchange } from "./exchange.js";
import { sleep, untilOnline } from "./limit.js";
import { isSafe } from "./options.js";
import { retryAfter } from "./retryafter.js";

const defaultEvery = 1000; // milliseconds

/** Where to ask about the operation of a keyed request, undefined if nowhere. */
export function statusAt(call) {
  const { statusURL } = call.options;
  if (statusURL === undefined || !call.keyed) return undefined;
  return within(call, new URL(statusURL, call.url));
}

/** Where the operation of a 202 is asked about until it has ended, undefined if it is not. */
export function polledAt(call, { response }) {
  if (!call.options.pollEvery || isSafe(call.method) || response?.status !== 202) return undefined;
  const location = response.headers.get("Location");
  if (!location) return undefined;
  try {
    return within(call, new URL(location, response.url || call.url));
  } catch {
    return undefined;
  }
}

/** Returns an address if it may be asked about an operation: on the request's own origin, or wherever crossOrigin allows. */
function within(call, url) {
  return call.options.crossOrigin || url.origin === call.url.origin ? url : undefined;
}

/** What describes a request's body, what it depends on, or how it is to be handled, does not go along with a question. */
const notAsked = /^(content-.*|if-.*|prefer|expect|range|digest|repr-digest|want-content-digest)$/;

/** What is told to an origin that only a server has named: nothing that may authenticate the caller. */
const toldAnyone = /^(accept|accept-.*|user-agent)$/;

/** Asks about an operation, by key if there is a text of one. */
export function question(call, url, text) {
  const { statusURL, correlationHeader } = call.options;
  const named = url.origin === call.url.origin || (statusURL !== undefined && url.origin === new URL(statusURL, call.url).origin);
  const asked = (name) => !notAsked.test(name) && (named || toldAnyone.test(name) || name === correlationHeader?.toLowerCase());
  const headers = new Headers([...call.headers].filter(([name]) => asked(name)));
  headers.delete(call.options.header);
  if (text !== undefined) headers.set(call.options.header, text);
  const { body, integrity, keepalive, ...init } = call.init;
  return exchange(call, url.href, { ...init, method: "GET", headers, cache: "no-store" }, true);
}

/**
 * Asks about an operation until it has ended, beginning with an answer that says that it has not. Questions that fail are
 * asked again as often in a row as a request would be. What it returns is the end of the call, and reported; but not if it was
 * asked by key and nothing is kept.
 */
export async function poll(call, kind, reply, url, text) {
  const o = call.options;
  let failures = 0;
  for (;;) {
    const now = Date.now();
    let delay = o.pollEvery || defaultEvery;
    if (failures > 0) delay = Math.max(delay, o.backoff(failures - 1, o.random()));
    if (!reply.failed) {
      const asked = retryAfter(reply.response.status, reply.response.headers, now);
      if (asked > 0) delay = Math.min(asked, o.maxRetryAfter);
      call.note(reply);
    }
    if (failures >= o.maxAttempts) call.reason = Reason.attempts;
    else if (now + delay >= call.limit.deadline) call.reason = Reason.deadline;
    else if (!call.fresh(now + delay)) call.reason = Reason.retention;
    call.report(kind, reply, call.reason ? undefined : delay);
    if (call.reason) return { kind, reply };
    await sleep(delay, call.signal);
    const network = !o.waitOnline || (await untilOnline(call.signal));

    kind = "poll";
    reply = await question(call, url, text);
    if (running(reply)) {
      failures = 0;
    } else if (call.retryable(reply)) {
      if (network || !reply.failed) failures++;
    } else if (text !== undefined && nothingKept(reply)) {
      return { kind, reply };
    } else {
      call.note(reply);
      call.report(kind, reply);
      return { kind, reply };
    }
  }
}
