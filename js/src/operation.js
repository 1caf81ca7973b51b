import { Code, IdempotencyError, Reason } from "./errors.js";
import { keyOf, newKey } from "./key.js";
import { limitOf, unlessAborted } from "./limit.js";

/**
 * One thing that somebody wants, under a name of the caller's. Its key is kept until there is a definite answer, so that a
 * reload sends the same one, and while a call of it is under way a second one is not made.
 */
export class Operation {
  #keys;
  #underWay;
  #prepare;
  #derived;

  /** derived is the key that the caller has for the operation; undefined means that each wish gets a random one. */
  constructor(name, derived, keys, underWay, prepare) {
    this.name = name;
    this.#derived = derived;
    this.#keys = keys;
    this.#underWay = underWay;
    this.#prepare = prepare;
  }

  get key() {
    return this.#keys.read(this.name);
  }

  forget() {
    const key = this.key;
    if (key) this.#keys.remove(this.name, key);
  }

  async fetch(url, init = {}) {
    for (;;) {
      const other = this.#underWay.get(this.name);
      if (!other) return copyOf(await this.#begin(url, init));
      try {
        return copyOf(await join(other, init));
      } catch (error) {
        if (init.signal?.aborted || !isGivenUp(other, error)) throw error;
      }
    }
  }

  #begin(url, init) {
    const kept = this.key;
    const derived = keyOf(this.#derived);
    if (kept && derived && kept.value !== derived.value) {
      throw new IdempotencyError({ code: Code.keyInvalid, detail: "what became of the operation's last key, another one, is not known" });
    }
    const key = kept ?? derived ?? newKey();
    const call = this.#prepare(url, init, { name: this.name, key });
    if (!kept) this.#keys.keep(this.name, key);
    const answer = this.#run(call, kept).finally(() => this.#underWay.delete(this.name));
    this.#underWay.set(this.name, { call, answer });
    return answer;
  }

  async #run(call, kept) {
    const { response, nothingKept } = await call.run();
    const { attempts, replayed } = response.idempotent;
    // Of what failed and is not kept, another run finds the steps that have succeeded under the same key.
    if (!nothingKept && isDefinite(response, replayed, kept !== undefined || attempts > 1)) this.#keys.remove(this.name, call.key);
    return response;
  }
}

/** Waits for the answer of a call that somebody else has made, for as long as an init allows. */
async function join({ call, answer }, init) {
  const limit = limitOf(init);
  try {
    return await unlessAborted(answer, limit.signal);
  } catch (error) {
    if (!limit.signal.aborted || error !== limit.signal.reason) throw error;
    const reason = error?.name === "TimeoutError" ? Reason.deadline : undefined;
    throw new IdempotencyError({ reason, attempts: call.sent, key: call.key, cause: error });
  } finally {
    limit.close();
  }
}

/** Whether a call has ended because whoever made it wants no answer any more: that is not the wish of those who joined. */
function isGivenUp({ call }, error) {
  const { signal } = call.init;
  return Boolean(signal?.aborted) && error?.cause === signal.reason;
}

/** A body can be read only once, and each caller has a right to it. */
function copyOf(response) {
  const copy = response.clone();
  Object.defineProperty(copy, "idempotent", { value: response.idempotent });
  return copy;
}

/**
 * Whether an answer says what became of the operation. That somebody has to log in again, or may not come in, says nothing of an
 * attempt whose answer was lost before that: the next one needs its key. Nor does a 202 that was preferred to waiting (RFC 7240).
 */
function isDefinite(response, replayed, sentBefore) {
  const goesOn = response.status === 202 && /respond-async/i.test(response.headers.get("Preference-Applied") ?? "");
  return replayed || (!goesOn && (!sentBefore || ![401, 403, 407].includes(response.status)));
}
