import { judge, replayed } from "./classify.js";
import { IdempotencyError, invalid } from "./errors.js";
import { responseOf } from "./exchange.js";
import { keyOf, maySent, randomUUID } from "./key.js";
import { isSafe } from "./options.js";
import { retryAfter } from "./retryafter.js";
import { tell } from "./tell.js";
import { untilOnline, within } from "./wait.js";

/** What a call says that ends with such a verdict. */
const codes = {
  "in-progress": "IDEMPOTENCY_IN_PROGRESS",
  reused: "IDEMPOTENCY_KEY_REUSED",
  unknown: "IDEMPOTENCY_OUTCOME_PENDING",
};

/**
 * Makes a request one logical call, itself and its repeats. Nothing of it is kept or sent yet. operation is the name of
 * that which it is of.
 */
export function prepare(call, options, send, operation) {
  const { url, method, headers, init, stream, timeout } = call;
  const page = globalThis.location;
  const own = !page || url.origin === page.origin;
  const deadline = timeout ? Date.now() + timeout : Infinity;
  let retries = 0;
  let waits = 0; // for an operation that runs: no attempt is spent by that

  // A redirect of a page's request to another origin then fails before anything is sent there.
  if (page && own && !options.crossOrigin[0]) init.mode ??= "same-origin";
  const { correlationHeader: name = own && "X-Correlation-Id" } = options;
  const correlation = name ? headers.get(name) || randomUUID() : undefined;
  if (name) headers.set(name, correlation); // it travels with the key

  /**
   * What the rules for answers, redirects, polling and operations know of a call, besides the request. Later it has the
   * key that is sent; maybe, that an attempt under the key may have arrived before the one that is judged; limit, the
   * signal that ends all; last, the reply whose response is the last answer; the reason why there is no further attempt
   * although that was worth it; and retryAt, when the server said to come again.
   */
  return Object.assign(call, { options, own, key: undefined, attempts: 0, send, run, tooLate, report, within: whole });

  /** Does what belongs to the call, for as long as its request, or that of somebody who waits for it, allows. */
  async function whole(f, { signal, timeout } = call) {
    let limit;
    try {
      return await within(signal, timeout, (ends) => f((limit = ends)));
    } catch (error) {
      if (signal?.aborted || error !== limit?.reason) throw error;
      return end({ error }, "deadline");
    }
  }

  /**
   * Sends the request until it has an answer that is final, or may not be sent again. Rejects if that is not the
   * operation's own. What the caller put into the request wins. given is the key that was kept, undefined if none, and
   * maybe says that it may have been sent before, as any may that the client has not made. keep is called before
   * anything is sent.
   */
  async function run(limit, given, maybe = maySent(given), keep) {
    const safe = isSafe(method);
    let key = keyOf(given);
    let body = await call.body;
    if (safe) {
      key = undefined;
    } else {
      const { value, put } = await options.field(body, headers, options);
      if (value != null) {
        if (key && key.value !== value) invalid("the request holds another key");
        key ??= { value, made: Date.now() };
      } else if (!key && options.methods.includes(method)) {
        key = { value: options.keyFor(url, init), made: Date.now() };
        maybe = options.keyFor !== randomUUID;
        if (key.value === "") key = undefined;
      }
      if (key) body = put(key.value);
    }
    Object.assign(call, { key, limit, maybe: key && maybe });
    if (key && init.mode === "no-cors") throw new TypeError("no-cors drops the key");
    if (key && stream) throw new IdempotencyError({ code: "BODY_NOT_REPEATABLE" });
    if (!stream) init.body = body;
    const repeats = key || (!stream && (safe || /^(PUT|DELETE)$/.test(method)));
    limit.throwIfAborted();
    limit.onabort = null; // from here on the call ends by itself, so that no answer is hidden by what comes after it
    keep?.();
    options.budget();
    for (;;) {
      const network = !options.waitOnline || (await untilOnline(limit));
      limit.throwIfAborted();
      call.reason = tooLate(Date.now()); // a computer may have slept over any delay
      if (call.reason) return end({});
      const reply = await options.polling.ask(call, attempt);
      if (!reply) continue; // nobody knows of the operation
      const { response, verdict } = reply;
      const running = verdict === "in-progress";
      const free = !response && !network; // the browser was right, and that costs no attempt
      const costs = !running && !free;
      let delay; // undefined if there is no further attempt
      if (repeats && (running || verdict === "retry")) {
        const now = Date.now();
        const asked = response ? retryAfter(response, now) : -1;
        if (asked >= 0) call.retryAt = new Date(now + asked);
        // An operation that runs is asked for after a second if the server does not say when.
        delay = Math.max(
          0,
          asked > 0 ? asked : running * 1000,
          options.backoff(running ? waits : retries, options.random()) || 0,
        );
        if (free) delay = 0;
        if (costs && retries + 1 >= options.maxAttempts) call.reason = "attempts";
        else if (asked > options.maxRetryAfter) call.reason = "retry-after";
        else call.reason = tooLate(now + delay) ?? (costs && !options.budget(true) ? "budget" : undefined);
        if (call.reason) delay = undefined;
      }
      report(reply, delay);
      if (!response) limit.throwIfAborted();
      if (delay === undefined) return end(reply);
      retries += costs;
      waits += running;
      call.maybe = true;
      await within(limit, delay);
    }
  }

  async function attempt() {
    call.attempts++;
    call.retryAt = undefined;
    const reply = await send(call, url, init);
    if (reply.response) call.last = reply;
    reply.verdict = await judge(call, reply);
    return reply;
  }

  /** Why nothing may be sent at a time, undefined if it may. */
  function tooLate(at) {
    if (at >= deadline) return "deadline";
    return call.key && at >= call.key.made + options.maxAge ? "retention" : undefined;
  }

  /** Tells of an attempt. There is another one after delay, unless that is undefined. */
  function report({ response, error, took, kind }, delay) {
    tell(options.onAttempt, {
      ...{ operation, correlation, error, took, delay, reason: call.reason },
      kind: kind ?? "request",
      number: retries + waits + 1,
      method: kind ? "GET" : method,
      host: url.host,
      status: response?.status,
      again: delay !== undefined,
    });
  }

  /** Returns the reply with which the call ended, or throws the error. */
  function end(reply, reason = call.reason) {
    const { key, attempts } = call;
    const { error } = reply;
    const last = reply.response ? reply : call.last;
    const { response, document, verdict, state, code = codes[verdict] } = last ?? {};
    const problem = response?.status >= 400 ? document : undefined;
    if (last !== reply || reason || code) {
      throw new IdempotencyError({
        ...call,
        reason,
        code: error ? undefined : code,
        response: last && responseOf(last),
        problem,
        cause: error,
      });
    }
    last.idempotent = { key, attempts, replayed: replayed(response.headers), state, problem };
    return last;
  }
}
