import { Code, IdempotencyError, Reason } from "./errors.js";
import { responseOf } from "./exchange.js";
import { keyOf, newKey } from "./key.js";
import { limitOf, unlessAborted } from "./limit.js";
import { ifUnlocked, locked } from "./lock.js";
import { isSafe } from "./options.js";
import { statusOf } from "./poll.js";
import { digestOf, requestOf } from "./request.js";

/**
 * One thing that somebody wants, under a name of the caller's. Its key is kept until there is a definite answer, so that a
 * reload sends the same one, and while a call of it is under way, in this tab or another, a second one is not made.
 */
export class Operation {
  #client;
  #item; // what stands for it in the storage
  #given; // the key that is derived from what it is for

  constructor(name, item, key, client) {
    keyOf(key);
    this.name = name;
    this.#item = item;
    this.#given = key;
    this.#client = client;
  }

  get key() {
    const { value, made, ended } = this.#client.keys.read(this.#item) ?? {};
    return value === undefined || ended ? undefined : { value, made };
  }

  forget() {
    const key = this.key;
    if (key) this.#client.keys.remove(this.#item, key);
  }

  async status(init) {
    const key = this.key ?? keyOf(this.#given);
    return key && statusOf(this.#client, this.name, key, init);
  }

  async fetch(input, init) {
    const asked = Date.now();
    const request = requestOf(input, init);
    for (;;) {
      const other = this.#client.underWay.get(this.#item);
      const reply = await (other ? join(other, request) : this.#begin(request, asked));
      if (reply) return responseOf(reply, reply.idempotent);
    }
  }

  #begin(request, asked) {
    if (request.key !== undefined) throw new TypeError("idempotent call: an operation has a key of its own");
    if (isSafe(request.method)) throw new TypeError("idempotent call: an operation needs an unsafe method");
    const { prepare, underWay } = this.#client;
    const call = prepare(request, this.name);
    const answer = this.#inTurn(call, asked).finally(() => {
      call.limit.close();
      underWay.delete(this.#item);
    });
    underWay.set(this.#item, { request, call, answer });
    return answer;
  }

  /** Makes the call when no other tab makes one of this operation. */
  async #inTurn(call, asked) {
    const { keys, options } = this.#client;
    if (!options.lock) return this.#run(call, asked, false);
    const name = options.storagePrefix + this.#item;
    try {
      return await locked(name, call.signal, (held) => this.#run(call, asked, held));
    } catch (error) {
      throw error === call.signal.reason ? endedBy(error, call.given, call) : error;
    } finally {
      await ifUnlocked(name, () => {
        const kept = keys.read(this.#item);
        if (kept?.ended) keys.remove(this.#item, kept);
      });
    }
  }

  async #run(call, asked, held) {
    const { keys } = this.#client;
    const digest = await digestOf(call);
    let kept = keys.read(this.#item);
    if (kept?.ended < asked) kept = undefined; // it had its answer before this was asked for: another wish
    const given = keyOf(this.#given);
    if (kept?.digest && kept.digest !== digest) reused(call, "the name stands for another request, which has no answer yet");
    if (given && kept && kept.value !== given.value) {
      throw new IdempotencyError({ code: Code.keyInvalid, detail: "what became of the operation's last key, another one, is not known" });
    }
    const { value, made } = kept ?? given ?? newKey();
    await call.use({ value, made }, kept !== undefined);
    const key = { value, made, digest };
    if (!kept) keys.keep(this.#item, key);
    const reply = await call.run();
    if (isDefinite(reply) && keys.read(this.#item)?.value === value) {
      // Who has waited for the lock meanwhile asked for the same thing, and sends the same key: the answer is given again.
      if (held) keys.keep(this.#item, { ...key, ended: Date.now() });
      else keys.remove(this.#item, key);
    }
    return reply;
  }
}

/**
 * Waits for the answer of a call that somebody else has made, for as long as a request allows. Returns nothing if whoever made
 * it has given it up: that is not the wish of those who joined.
 */
async function join({ request: other, call, answer }, request) {
  const limit = limitOf(request);
  try {
    const [mine, first] = await Promise.all([digestOf(request), digestOf(other)]);
    if (mine !== first) reused(call, "the name stands for another request, which is under way");
    return await unlessAborted(answer, limit.signal);
  } catch (error) {
    if (limit.signal.aborted && error === limit.signal.reason) throw endedBy(error, request.signal, call);
    if (other.signal?.aborted && error === other.signal.reason) return undefined;
    throw error;
  } finally {
    limit.close();
  }
}

function reused({ sent, key }, detail) {
  throw new IdempotencyError({ code: Code.keyReused, attempts: sent, key, detail });
}

/** The error of a wait that a signal has ended: the caller's own reason, or that its time is over. */
function endedBy(error, signal, { sent, key }) {
  if (signal?.aborted && error === signal.reason) return error;
  return new IdempotencyError({ reason: Reason.deadline, attempts: sent, key, cause: error });
}

/**
 * Whether an answer says what became of the operation: not a 202 that was preferred to waiting (RFC 7240), and not that it has
 * failed and is not kept, since another run finds the steps that have succeeded under the same key.
 */
function isDefinite({ response: { status, headers }, idempotent, nothingKept }) {
  const goesOn = status === 202 && /respond-async/i.test(headers.get("Preference-Applied") ?? "");
  return !nothingKept && (idempotent.replayed || !goesOn);
}
