import { codeOfState, isGuards, judge, lost, nothingKept, refused, replayed, running, told } from "./classify.js";
import { Code, IdempotencyError, Reason } from "./errors.js";
import { responseOf } from "./exchange.js";
import { decode, encode, newKey, randomUUID } from "./key.js";
import { limitOf, sleep, untilOnline } from "./limit.js";
import { isSafe } from "./options.js";
import { poll, polledAt, question, statusAt } from "./poll.js";
import { follow } from "./redirect.js";
import { retryAfter } from "./retryafter.js";
import { tell } from "./tell.js";

const wait = 1000; // milliseconds, for an operation that runs, if the server does not say

/** One logical call: a request and its repeats. */
export class Call {
  sent = 0;
  retries = 0;
  waits = 0; // for an operation that runs: no attempt is spent by that
  number = 1; // of the attempt under way
  reason = undefined;
  retryAt = undefined; // milliseconds since 1970
  last = undefined; // the reply whose response is the last answer
  state = undefined; // of the operation, where it was asked about
  maybe = false; // an attempt under the key may have arrived before the one that is judged

  /** Throws what is wrong with a call before anything of it is kept or sent. operation is the name of that which it is of. */
  constructor(options, budget, request, operation) {
    const { url, method, headers, init, body, signal } = request;
    new Request(url, { ...init, signal: undefined, duplex: "half" }); // throws what fetch would throw on each attempt
    Object.assign(this, { options, budget, operation, url, method, headers, body, init: { ...init, headers }, given: signal });
    this.limit = limitOf(request);
    this.own = !globalThis.location || url.origin === globalThis.location.origin;
    // A redirect of a page's request to another origin then fails before anything is sent there.
    if (globalThis.location && this.own && options.crossOrigin.length === 0) this.init.mode ??= "same-origin";
    const { correlationHeader = this.own ? "X-Correlation-Id" : null } = options;
    if (correlationHeader !== null) {
      this.correlation = headers.get(correlationHeader) || randomUUID();
      headers.set(correlationHeader, this.correlation); // it travels with the key
    }
  }

  get signal() {
    return this.limit.signal;
  }

  /**
   * Decides on the key and on the bytes that are sent. What the caller put into the request wins. given is the key that was kept,
   * undefined if none, and maybe says that it may have been sent before, as any may that the client has not made.
   */
  async use(given, maybe) {
    const { header, field, bare, methods, keyFor } = this.options;
    const { body, type } = (await this.body) ?? {};
    let content = body;
    if (isSafe(this.method)) {
      given = undefined;
    } else {
      const fields = field && (await fieldsOf(body));
      const own = fields ? fields.members[field] : this.headers.get(header);
      if (own != null) {
        const value = fields ? own : decode(own);
        if (given && given.value !== value) invalid("the request holds another key");
        given ??= { value, made: Date.now() };
        this.text = own;
        maybe ??= true;
      } else if (!given && methods.includes(this.method)) {
        given = keyFor ? { value: keyFor(this.url, this.init), made: Date.now() } : newKey();
        maybe = Boolean(keyFor);
        if (given.value === "") given = undefined;
      }
      if (given) this.text ??= encode(given.value, bare);
      if (given && own == null && fields) content = fields.and(field, given.value);
      if (given && !fields) this.headers.set(header, this.text);
    }
    this.key = given;
    this.keyed = given !== undefined;
    this.maybe = Boolean(this.keyed && maybe);
    this.repeats = this.keyed || (this.body !== undefined && (isSafe(this.method) || ["PUT", "DELETE"].includes(this.method)));
    if (this.keyed && this.init.mode === "no-cors") {
      throw new TypeError('idempotent call: in the mode "no-cors" the platform drops the key');
    }
    if (this.keyed && !this.body) {
      const detail = "the request's body is a stream, which can't be sent again: nothing was sent";
      throw new IdempotencyError({ code: Code.bodyNotRepeatable, detail });
    }
    if (this.body) this.init.body = content;
    if (type && !this.headers.has("Content-Type")) this.headers.set("Content-Type", type);
  }

  /** Makes the call, once. Rejects if it ends without an answer of the operation's own. */
  async run() {
    try {
      this.budget.deposit();
      return this.#end(await this.#attempts());
    } finally {
      this.limit.close();
    }
  }

  /** Sends the request until it has an answer that is final, or may not be sent again. */
  async #attempts() {
    try {
      return await this.#repeat();
    } catch (error) {
      if (!this.signal.aborted) throw error;
      return { failed: true, error: this.signal.reason };
    }
  }

  async #repeat() {
    const status = statusAt(this);
    let ask = false; // about the operation, before sending again
    for (;;) {
      this.number = this.retries + this.waits + 1;
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
        if (!reply.failed && !this.again(reply)) {
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
      if (!network && reply.failed && this.repeats && this.again(reply)) {
        this.report(kind, reply, 0); // the browser was right, and that costs no attempt
        continue;
      }
      const delay = this.repeats && this.again(reply) ? this.#next(reply) : undefined;
      this.report(kind, reply, delay);
      if (delay === undefined) {
        if (kind === "status") this.note(reply);
        return reply;
      }
      this.maybe = true;
      await sleep(delay, this.signal);
    }
  }

  async #attempt() {
    this.sent++;
    this.retryAt = undefined;
    const reply = await follow(this, this.url, this.init, false);
    if (!reply.failed) this.last = reply;
    reply.verdict = await judge(this, reply);
    return reply;
  }

  /** Whether a reply is worth another attempt. */
  again(reply) {
    return ["retry", "in-progress"].includes(reply.verdict);
  }

  /** Decides when an attempt that is worth repeating is repeated; undefined if it is not, and the reason says why. */
  #next(reply) {
    const o = this.options;
    const now = Date.now();
    const waits = reply.verdict === "in-progress";
    const asked = reply.failed ? undefined : retryAfter(reply.response.status, reply.response.headers, now);
    this.retryAt = asked === undefined ? undefined : now + asked;
    const backoff = o.backoff(waits ? this.waits : this.retries, o.random()) || 0;
    const delay = Math.max(0, asked || (waits ? wait : 0), backoff);
    if (!waits && this.retries + 1 >= o.maxAttempts) this.reason = Reason.attempts;
    else if (asked > o.maxRetryAfter) this.reason = Reason.retryAfter;
    else if (now + delay >= this.limit.deadline) this.reason = Reason.deadline;
    else if (!this.fresh(now + delay)) this.reason = Reason.retention;
    else if (!waits && !this.budget.withdraw()) this.reason = Reason.budget;
    else {
      if (waits) this.waits++;
      else this.retries++;
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

  /** Returns the reply with which the call ended, or throws the error. */
  #end(reply) {
    if (this.given?.aborted && reply.error === this.given.reason) throw reply.error;
    const { response, document, verdict } = this.last ?? {};
    const code = codeOfState(this.state) ?? (isGuards(document?.code) ? document.code : codes[verdict]);
    if (reply.failed || this.reason || code) {
      if (this.signal.aborted && reply.error?.name === "TimeoutError") this.reason ??= Reason.deadline;
      throw new IdempotencyError({
        code: reply.error === undefined ? code : undefined,
        reason: this.reason,
        attempts: this.sent,
        retryAt: this.retryAt === undefined ? undefined : new Date(this.retryAt),
        response: this.last && responseOf(this.last),
        problem: response?.status >= 400 ? document : undefined,
        key: this.key,
        cause: reply.error,
      });
    }
    this.last.nothingKept = nothingKept(this.last);
    this.last.idempotent = Object.freeze({
      key: this.key,
      attempts: this.sent,
      replayed: replayed(response.headers),
      state: this.state,
      problem: response.status >= 400 ? document : undefined,
    });
    return this.last;
  }
}

/** What a call says that ends with such a verdict. */
const codes = { "in-progress": Code.inProgress, reused: Code.keyReused, unknown: Code.outcomePending };

/** The members of a body of JSON in which the key has a field, and the body with one more. */
async function fieldsOf(body) {
  const text = typeof body === "string" ? body : await new Response(body).text();
  let members;
  try {
    members = JSON.parse(text);
  } catch {}
  if (!members || typeof members !== "object" || Array.isArray(members)) {
    throw new TypeError("idempotent call: a body that is to hold the key has to be an object of JSON");
  }
  const comma = Object.keys(members).length > 0 ? "," : "";
  const and = (name, value) => text.replace("{", () => `{${JSON.stringify(name)}:${JSON.stringify(value)}${comma}`);
  return { members, and };
}

function invalid(detail) {
  throw new IdempotencyError({ code: Code.keyInvalid, detail });
}
