import { judge, nothingKept, running } from "./classify.js";
import { readDocument } from "./document.js";
import { Code, Reason } from "./errors.js";
import { encode } from "./key.js";
import { sleep, untilOnline } from "./limit.js";
import { isSafe } from "./options.js";
import { follow } from "./redirect.js";
import { requestOf } from "./request.js";
import { retryAfter } from "./retryafter.js";

const defaultEvery = 1000; // milliseconds

/** Where to ask about the operation of a keyed request, undefined if nowhere. */
export function statusAt({ options, keyed, url }) {
  return keyed ? within(options.statusURL, url, url) : undefined;
}

/** Where the operation of a 202 is asked about until it has ended, undefined if it is not. */
export function polledAt({ options, method, url }, { response }) {
  if (!options.pollEvery || isSafe(method) || response?.status !== 202) return undefined;
  return within(response.headers.get("Location"), response.url || url, url);
}

/** An address, which may be relative, if it is of the request's own origin: no other is asked. */
function within(address, base, { origin }) {
  try {
    const url = new URL(address ?? "", base);
    return address && url.origin === origin ? url : undefined;
  } catch {
    return undefined;
  }
}

/** What describes a request's body, what it depends on, or how it is to be handled, does not go along with a question. */
const notAsked = /^(content-.*|if-.*|prefer|expect|range|digest|repr-digest|want-content-digest)$/;

/** Asks about an operation, by key if there is a text of one. */
export async function question(call, url, text) {
  const headers = new Headers([...call.headers].filter(([name]) => !notAsked.test(name)));
  headers.delete(call.options.header);
  if (text !== undefined) headers.set(call.options.header, text);
  const { body, integrity, keepalive, ...init } = call.init;
  const reply = await follow(call, url, { ...init, method: "GET", headers, cache: "no-store" }, true);
  reply.verdict = await judge(call, reply, true);
  return reply;
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
    } else if (call.again(reply)) {
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

/** Asks what became of an operation. Returns what is told of it, undefined if nothing is. */
export async function statusOf({ options, prepare }, name, { value }, init) {
  if (options.statusURL === undefined) throw new TypeError("idempotent client: the option statusURL says where to ask");
  const call = prepare(requestOf(options.statusURL, { redirect: "error", cache: "no-store", ...init, method: "GET" }), name);
  call.headers.set(options.header, encode(value, options.bare));
  await call.use();
  try {
    const { response, bytes } = await call.run();
    return readDocument(response, bytes, true);
  } catch (error) {
    if (error.code === Code.operationNotFound) return undefined;
    throw error;
  }
}
