import { judge } from "./classify.js";
import { IdempotencyError, invalid } from "./errors.js";
import { keyOf, maySent, randomUUID } from "./key.js";
import { isOwn, isSafe } from "./options.js";
import { retryAfter } from "./retryafter.js";
import { sleep, within } from "./wait.js";

/** What a call says that ends with such a verdict. */
const codes = {
  "in-progress": "IDEMPOTENCY_IN_PROGRESS",
  reused: "IDEMPOTENCY_KEY_REUSED",
  unknown: "IDEMPOTENCY_OUTCOME_PENDING",
};

/** Makes a request one logical call, itself and its repeats. Nothing of it is kept or sent yet. */
export function prepare(call, options) {
  const { url, method, headers, init, stream, timeout } = call;
  const own = isOwn(call);
  const deadline = Date.now() + timeout;
  let retries = 0; // to wait for an operation that runs is none

  // A redirect of a page's request to another origin then fails before anything is sent there.
  if (globalThis.location && own && !options.crossOrigin[0]) init.mode ??= "same-origin";
  const { correlationHeader: name = own && "X-Correlation-Id" } = options;
  if (name && !headers.has(name)) headers.set(name, randomUUID()); // it travels with the key

  async function attempt() {
    call.attempts++;
    call.error = call.code = call.retryAt = undefined;
    Object.assign(call, await options.send(call, url, init));
    call.verdict = await judge(call);
  }

  /** Why nothing may be sent at a time, undefined if it may. */
  function tooLate(at) {
    return at >= deadline ? "deadline" : at >= call.key?.made + options.maxAge ? "retention" : undefined;
  }

  /**
   * What the rules for answers, redirects, polling and operations know of a call, besides the request. Later it has the
   * key that is sent; maybe, that an attempt under the key may have arrived before the last one; limit, the signal that
   * ends all; number, that of the attempt, without those that cost nothing; what came of the last attempt, or question:
   * error, or response, bytes, problem, redirected, and verdict; the reason why there is no further attempt although
   * that was worth it; and retryAt, when the server said to come again. After an error the response is still the last
   * one that came.
   */
  return Object.assign(call, {
    options,
    attempts: 0,
    number: 1,

    /** Does what belongs to the call, for as long as its request, or that of somebody who waits for it, allows. */
    bounded(f, { signal, timeout } = call) {
      const over = (error) => new IdempotencyError({ ...call, code: undefined, reason: "deadline", error });
      return within(signal, timeout, f, over);
    },

    /**
     * Sends the request until it has an answer that is final, or may not be sent again. Rejects if that is not the
     * operation's own. What the caller put into the request wins. given is the key that was kept, undefined if none,
     * and maybe says that it may have been sent before, as any may that the client has not made. keep is called before
     * anything is sent.
     */
    async run(limit, given = call.given, maybe = maySent(given), keep) {
      const safe = isSafe(method);
      let body = await call.body;
      let key;
      if (!safe) {
        const { value, put } = await options.field(body, headers, options);
        key = keyOf(given ?? value);
        if (value != null && key.value !== value) invalid("two keys");
        if (!key && options.methods.includes(method)) {
          const value = options.keyFor(url, init);
          maybe = options.keyFor !== randomUUID;
          if (value !== "") key = keyOf({ value });
        }
        if (key) {
          if (init.mode === "no-cors") throw new TypeError("no-cors drops the key");
          if (stream) throw new IdempotencyError({ code: "BODY_NOT_REPEATABLE" });
          body = put(key.value);
        }
      }
      Object.assign(call, { key, limit, maybe });
      init.body ??= body;
      const repeats = key || (!stream && (safe || /^(PUT|DELETE)$/.test(method)));
      limit.throwIfAborted();
      limit.onabort = null; // from here on the call ends by itself, so that no answer is hidden by what comes after it
      keep?.();
      options.budget();
      for (;;) {
        const network = await options.waitOnline(limit);
        call.started = Date.now();
        call.reason = tooLate(call.started); // a computer may have slept over any delay
        if (call.reason) break;
        if (await options.polling.ask(call, attempt, tooLate)) continue; // nobody knows of the operation
        const { error, response, verdict } = call;
        const running = verdict === "in-progress";
        const free = error && !network; // the browser was right, and that costs no attempt
        const costs = !running && !free;
        let delay; // undefined if there is no further attempt
        if (repeats && (running || verdict === "retry")) {
          const now = Date.now();
          const asked = error ? -1 : retryAfter(response, now);
          if (asked >= 0) call.retryAt = new Date(now + asked);
          // An operation that runs is asked for after a second if the server does not say when.
          delay = Math.max(
            asked,
            running * 1000,
            options.backoff(running ? call.number - 1 - retries : retries, options.random()) || 0,
          );
          call.reason =
            costs && retries + 1 >= options.maxAttempts
              ? "attempts"
              : asked > options.maxRetryAfter
                ? "retry-after"
                : (tooLate(now + delay) ?? (costs && !options.budget(true) ? "budget" : undefined));
          if (call.reason) delay = undefined;
        }
        options.attempts.tell(call, delay);
        if (error) limit.throwIfAborted();
        if (delay === undefined) break;
        retries += costs;
        call.number += !free;
        call.maybe = true;
        await sleep(limit, delay);
      }
      call.code ??= codes[call.verdict];
      if (call.error || call.code || call.reason) throw new IdempotencyError(call);
      return call;
    },
  });
}
