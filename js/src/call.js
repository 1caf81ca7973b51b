import { checkBody, keepBody } from "./body.js";
import { codeOfState, isGuards, lost, nothingKept, open, refused, replayed, retryable, running, told } from "./classify.js";
import { Code, IdempotencyError, Reason } from "./errors.js";
import { exchange } from "./exchange.js";
import { decode, encode, keyOf, newKey, randomUUID } from "./key.js";
import { limitOf, sleep, untilOnline } from "./limit.js";
import { isSafe } from "./options.js";
import { poll, polledAt, question, statusAt } from "./poll.js";
import { retryAfter } from "./retryafter.js";
import { tell } from "./tell.js";

/** One logical call: a request and its repeats. */
export class Call {
  sent = 0;
  retries = 0;
  number = 1; // of the attempt under way
  reason = undefined;
  retryAt = undefined; // milliseconds since 1970
  last = undefined; // the reply whose response is the last answer
  state = undefined; // of the operation, where it was asked about

  /**
   * Throws what is wrong with a call, before anything of it is kept or sent. owner, undefined if none, is the operation that it
   * is of: its name, and the key under which it is made.
   */
  constructor(options, budget, url, init, owner) {
    if (typeof url !== "string" && !(url instanceof URL)) {
      throw new TypeError("idempotent call: want an address and an init; a Request's body can be sent only once");
    }
    if (init === null || typeof init !== "object" || init instanceof Request) {
      throw new TypeError("idempotent call: want an init that is an object, and no Request");
    }
    const { key, timeout: _, ...rest } = init;
    this.options = options;
    this.budget = budget;
    this.operation = owner?.name;
    this.url = new URL(url, globalThis.document?.baseURI ?? globalThis.location?.href);
    this.method = (rest.method ?? "GET").toUpperCase();
    this.headers = new Headers(rest.headers);
    this.init = { ...rest, method: this.method, headers: this.headers };
    if (owner && key !== undefined) throw new TypeError("idempotent call: an operation has a key of its own");
    if (owner && isSafe(this.method)) throw new TypeError("idempotent call: an operation needs an unsafe method");
    this.#correlate();
    this.#takeKey(url, init, owner?.key ?? keyOf(key));
    this.keyed = this.text !== undefined;
    this.repeats = this.keyed || isSafe(this.method);
    if (this.keyed && rest.mode === "no-cors") {
      throw new TypeError('idempotent call: in the mode "no-cors" the platform drops the key');
    }
    if (this.repeats) {
      checkBody(rest.body);
      new Request(this.url, { ...this.init, signal: undefined }); // throws what fetch would throw on each attempt
    }
    this.limit = limitOf(init);
  }

  get signal() {
    return this.limit.signal;
  }

  #correlate() {
    const name = this.options.correlationHeader;
    if (name === null) return;
    this.correlation = this.headers.get(name) || randomUUID();
    this.headers.set(name, this.correlation); // it travels with the key
  }

  /** Decides on the key: what the caller put into the header wins. given is the one that was kept, undefined if none. */
  #takeKey(url, init, given) {
    const o = this.options;
    if (isSafe(this.method)) return;
    const own = this.headers.get(o.header);
    if (own !== null) {
      const value = decode(own);
      if (given && given.value !== value) {
        throw new IdempotencyError({ code: Code.keyInvalid, detail: `the header ${o.header} holds another key` });
      }
      this.key = { value, made: given?.made ?? Date.now() };
      this.text = own;
      return;
    }
    if (given) {
      this.key = given;
    } else if (o.methods.includes(this.method)) {
      this.key = o.keyFor ? { value: o.keyFor(url, init), made: Date.now() } : newKey();
    }
    if (!this.key?.value && !given) {
      this.key = undefined;
      return;
    }
    this.text = encode(this.key.value, o.bare);
    this.headers.set(o.header, this.text);
  }

  /** Makes the call, once; rejects with an IdempotencyError if it ends without an answer of the operation's own. */
  async run() {
    try {
      this.budget.deposit();
      if (this.repeats) await this.#keepBody();
      return this.#end(await this.#send());
    } finally {
      this.limit.close();
    }
  }

  async #keepBody() {
    const { body, type } = await keepBody(this.init.body);
    this.init.body = body;
    if (type && !this.headers.has("Content-Type")) this.headers.set("Content-Type", type);
  }

  async #send() {
    try {
      return await this.#attempts();
    } catch (error) {
      if (!this.signal.aborted) throw error;
      return { failed: true, error: this.signal.reason };
    }
  }

  /** Sends the request until it has an answer that is final, or may not be sent again. */
  async #attempts() {
    const status = statusAt(this);
    let ask = false; // about the operation, before sending again
    for (;;) {
      this.number = this.retries + 1;
      const network = !this.options.waitOnline || (await untilOnline(this.signal));
      this.signal.throwIfAborted();
      if (!this.fresh(Date.now())) {
        this.reason = Reason.retention; // a computer may have slept over any delay
        return { failed: true };
      }
      let kind = "request";
      let reply;
      if (ask) {
        kind = "status";
        reply = await question(this, status, this.text);
        if (running(reply)) {
          ({ kind, reply } = await poll(this, kind, reply, status, this.text));
          if (!nothingKept(reply)) return reply;
        }
        if (told(reply) && !nothingKept(reply)) {
          this.report(kind, reply);
          this.note(reply);
          return reply;
        }
        if (!reply.failed && !this.retryable(reply)) {
          this.report(kind, reply, 0); // never seen, not kept, or nobody there who would know
          ask = false;
          this.state = undefined;
          continue;
        }
      }
      if (kind === "request") {
        reply = await this.#attempt();
        const location = polledAt(this, reply);
        if (location) return (await poll(this, kind, reply, location)).reply;
        ask = status !== undefined && (reply.failed || lost(reply.response.status, reply.document));
      }
      if (!network && reply.failed && this.repeats && this.retryable(reply)) {
        this.report(kind, reply, 0); // the browser was right, and that costs no attempt
        continue;
      }
      const delay = this.repeats && this.retryable(reply) ? this.#next(reply) : undefined;
      this.report(kind, reply, delay);
      if (delay === undefined) {
        if (kind === "status") this.note(reply);
        return reply;
      }
      await sleep(delay, this.signal);
    }
  }

  async #attempt() {
    this.sent++;
    this.retryAt = undefined;
    const reply = await exchange(this, this.url.href, this.init, false);
    if (!reply.failed) this.last = reply;
    return reply;
  }

  retryable(reply) {
    if (reply.failed) return !this.signal.aborted;
    return retryable(reply.response.status, reply.response.headers, reply.document, this.keyed);
  }

  /** Decides when an attempt that is worth repeating is repeated; undefined if it is not, and the reason says why. */
  #next(reply) {
    const o = this.options;
    const now = Date.now();
    let asked = 0;
    this.retryAt = undefined;
    if (!reply.failed) {
      const told = retryAfter(reply.response.status, reply.response.headers, now);
      if (told !== undefined) {
        asked = told;
        this.retryAt = now + told;
      }
    }
    const delay = Math.max(0, asked, o.backoff(this.retries, o.random()) || 0);
    if (this.retries + 1 >= o.maxAttempts) this.reason = Reason.attempts;
    else if (asked > o.maxRetryAfter) this.reason = Reason.retryAfter;
    else if (now + delay >= this.limit.deadline) this.reason = Reason.deadline;
    else if (!this.fresh(now + delay)) this.reason = Reason.retention;
    else if (!this.budget.withdraw()) this.reason = Reason.budget;
    else {
      this.retries++;
      return delay;
    }
    return undefined;
  }

  /** Whether the key may be sent at a time. */
  fresh(at) {
    return !this.keyed || at < this.key.made + this.options.maxAge;
  }

  /** Makes an answer about the operation that of the call. */
  note(reply) {
    if (!reply.failed) this.last = reply;
    if (running(reply)) this.state = "running";
    else if (reply.response?.status >= 400) this.state = refused;
    else this.state = reply.document?.state;
  }

  /** Tells of an attempt. There is another one after delay, unless that is undefined. */
  report(kind, reply, delay) {
    tell(this.options.onAttempt, {
      kind,
      number: this.number,
      operation: this.operation,
      correlation: this.correlation,
      method: kind === "request" ? this.method : "GET",
      host: this.url.host,
      status: reply.response?.status,
      error: reply.error,
      took: reply.took,
      again: delay !== undefined,
      delay,
      reason: this.reason,
    });
  }

  /** Returns the answer with which the call ended, or throws the error. */
  #end(reply) {
    const { response, document } = this.last ?? {};
    let code = codeOfState(this.state) ?? (isGuards(document?.code) ? document.code : undefined);
    if (this.keyed && !this.reason && !reply.failed && open(response)) code ??= Code.outcomePending;
    if (reply.failed || this.reason || code) {
      if (this.signal.aborted && reply.error?.name === "TimeoutError") this.reason ??= Reason.deadline;
      throw new IdempotencyError({
        code: reply.error === undefined ? code : undefined,
        reason: this.reason,
        attempts: this.sent,
        retryAt: this.retryAt === undefined ? undefined : new Date(this.retryAt),
        response,
        problem: response?.status >= 400 ? document : undefined,
        key: this.key,
        cause: reply.error,
      });
    }
    const idempotent = Object.freeze({
      key: this.key,
      attempts: this.sent,
      replayed: replayed(response.headers),
      state: this.state,
      problem: response.status >= 400 ? document : undefined,
    });
    Object.defineProperty(response, "idempotent", { value: idempotent });
    return { response, nothingKept: nothingKept(this.last) };
  }
}
