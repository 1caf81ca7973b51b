import { isGuards, isWorth, judge, replayed } from "./classify.js";
import { IdempotencyError, invalid } from "./errors.js";
import { responseOf } from "./exchange.js";
import { decode, encode, newKey, randomUUID } from "./key.js";
import { limitOf, sleep, untilOnline } from "./limit.js";
import { isSafe } from "./options.js";
import { follow } from "./redirect.js";
import { retryAfter } from "./retryafter.js";
import { tell } from "./tell.js";

const second = 1000; // is waited for an operation that runs, if the server does not say

/** What a call says that ends with such a verdict. */
const codes = { "in-progress": "IDEMPOTENCY_IN_PROGRESS", reused: "IDEMPOTENCY_KEY_REUSED", unknown: "IDEMPOTENCY_OUTCOME_PENDING" };

/**
 * One logical call: a request and its repeats. Throws what is wrong with it before anything of it is kept or sent. operation is
 * the name of that which it is of.
 */
export function prepare(options, budget, request, operation) {
  const { url, method, headers, init } = request;
  const { polling } = options;
  new Request(url, { ...init, signal: undefined, duplex: "half" }); // throws what fetch would throw on each attempt
  const page = globalThis.location;
  const own = !page || url.origin === page.origin;
  const safe = isSafe(method);
  const limit = limitOf(request);
  const { signal } = limit;
  let retries = 0;
  let waits = 0; // for an operation that runs: no attempt is spent by that
  let number; // of the attempt under way
  let repeats; // whether the request may be sent again

  // A redirect of a page's request to another origin then fails before anything is sent there.
  if (page && own && options.crossOrigin.length === 0) init.mode ??= "same-origin";
  const { correlationHeader = own ? "X-Correlation-Id" : null } = options;
  const correlation = correlationHeader ? headers.get(correlationHeader) || randomUUID() : undefined;
  if (correlation) headers.set(correlationHeader, correlation); // it travels with the key

  /**
   * What the rules for answers, redirects, polling and operations know of a call. Later it has its key, keyed, and the text of
   * that as it is sent; maybe, that an attempt under the key may have arrived before the one that is judged; last, the reply
   * whose response is the last answer; the reason why there is no further attempt although that was worth it; retryAt, when the
   * server said to come again; and of the operation, where it was asked about, the state, with the code that it stands for.
   */
  const call = {
    ...{ options, request, url, method, headers, init, signal, own, use, run, tooLate, report },
    attempts: 0,
    close: limit.close,
  };
  return call;

  /**
   * Decides on the key and on the bytes that are sent. What the caller put into the request wins. given is the key that was kept,
   * undefined if none, and maybe says that it may have been sent before, as any may that the client has not made.
   */
  async function use(given, maybe) {
    const { header, bare, methods, keyFor } = options;
    let { body, type } = (await request.body) ?? {};
    let key;
    if (!safe) {
      const field = await options.field?.(body); // of the body, in place of the header
      const text = field ? field.value : headers.get(header);
      key = given;
      if (text != null) {
        const value = field ? text : decode(text);
        if (key && key.value !== value) invalid("the request holds another key");
        key ??= { value, made: Date.now() };
        maybe ??= true;
      } else if (!key && methods.includes(method)) {
        key = keyFor ? { value: keyFor(url, init), made: Date.now() } : newKey();
        maybe = Boolean(keyFor);
        if (key.value === "") key = undefined;
      }
      if (key) {
        call.text = text ?? encode(key.value, bare);
        if (!field) headers.set(header, call.text);
        else if (text == null) body = field.put(key.value);
      }
    }
    call.key = key;
    call.keyed = key !== undefined;
    call.maybe = Boolean(key && maybe);
    repeats = key || (request.body && (safe || ["PUT", "DELETE"].includes(method)));
    if (key && init.mode === "no-cors") throw new TypeError('the mode "no-cors" drops the key');
    if (key && !request.body) {
      throw new IdempotencyError({ code: "BODY_NOT_REPEATABLE", detail: "a stream can't be sent again" });
    }
    if (request.body) init.body = body;
    if (type && !headers.has("Content-Type")) headers.set("Content-Type", type);
  }

  /** Makes the call, once. Rejects if it ends without an answer of the operation's own. */
  async function run() {
    budget.deposit();
    let reply;
    try {
      reply = await repeat();
    } catch (error) {
      if (!signal.aborted) throw error;
      reply = { failed: true, error: signal.reason };
    } finally {
      limit.close();
    }
    return end(reply);
  }

  /** Sends the request until it has an answer that is final, or may not be sent again. */
  async function repeat() {
    let ask; // about the operation, before sending again
    for (;;) {
      number = retries + waits + 1;
      const network = !options.waitOnline || (await untilOnline(signal));
      signal.throwIfAborted();
      call.reason = tooLate(Date.now()); // a computer may have slept over any delay
      if (call.reason) return { failed: true };
      const reply = await (ask ? polling.ask(call) : attempt());
      if (reply?.ended) return reply;
      if (!reply) {
        ask = false; // nobody knows of the operation
        continue;
      }
      const kind = ask ? "status" : "request";
      const worth = repeats && isWorth(reply);
      if (!ask) ask = polling?.helps(call, reply);
      if (worth && reply.failed && !network) {
        report(kind, reply, 0); // the browser was right, and that costs no attempt
        continue;
      }
      const delay = worth ? next(reply) : undefined;
      report(kind, reply, delay);
      if (delay === undefined) {
        if (kind === "status") polling.note(call, reply);
        return reply;
      }
      call.maybe = true;
      await sleep(delay, signal);
    }
  }

  async function attempt() {
    call.attempts++;
    call.retryAt = undefined;
    const reply = await follow(call, url, init, false);
    if (!reply.failed) call.last = reply;
    reply.verdict = await judge(call, reply);
    return (await polling?.followed(call, reply)) ?? reply;
  }

  /** Decides when an attempt that is worth repeating is repeated; undefined if it is not, and the reason says why. */
  function next({ verdict, response }) {
    const now = Date.now();
    const running = verdict === "in-progress";
    const asked = response && retryAfter(response.status, response.headers, now);
    call.retryAt = asked === undefined ? undefined : new Date(now + asked);
    const backoff = options.backoff(running ? waits : retries, options.random()) || 0;
    const delay = Math.max(0, asked || (running ? second : 0), backoff);
    if (!running && retries + 1 >= options.maxAttempts) call.reason = "attempts";
    else if (asked > options.maxRetryAfter) call.reason = "retry-after";
    else call.reason = tooLate(now + delay) ?? (running || budget.withdraw() ? undefined : "budget");
    if (call.reason) return undefined;
    if (running) waits++;
    else retries++;
    return delay;
  }

  /** Why nothing may be sent at a time, undefined if it may. */
  function tooLate(at) {
    if (at >= limit.deadline) return "deadline";
    return call.key && at >= call.key.made + options.maxAge ? "retention" : undefined;
  }

  /** Tells of an attempt. There is another one after delay, unless that is undefined. */
  function report(kind, { response, error, took }, delay) {
    tell(options.onAttempt, {
      ...{ kind, number, operation, correlation, error, took, delay },
      method: kind === "request" ? method : "GET",
      host: url.host,
      status: response?.status,
      again: delay !== undefined,
      reason: call.reason,
    });
  }

  /** Returns the reply with which the call ended, or throws the error. */
  function end({ failed, error }) {
    const { last, key, attempts, state } = call;
    if (request.signal?.aborted && error === request.signal.reason) throw error;
    const { response, document, verdict } = last ?? {};
    const problem = response?.status >= 400 ? document : undefined;
    const code = call.code ?? (isGuards(document?.code) ? document.code : codes[verdict]);
    if (failed || call.reason || code) {
      if (signal.aborted && error?.name === "TimeoutError") call.reason ??= "deadline";
      throw new IdempotencyError({
        ...call,
        code: error === undefined ? code : undefined,
        response: last && responseOf(last),
        problem,
        cause: error,
      });
    }
    last.idempotent = { key, attempts, replayed: replayed(response.headers), state, problem };
    return last;
  }
}
