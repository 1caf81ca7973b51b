import { isSafe } from "./options.js";

/**
 * One thing that somebody wants, under a name of the caller's. Its key is kept until there is a definite answer, so that a
 * reload sends the same one, and while a call of it is under way a second one is not made.
 */
export class Operation {
  #keys;
  #underWay;
  #send;

  constructor(name, keys, underWay, send) {
    this.name = name;
    this.#keys = keys;
    this.#underWay = underWay;
    this.#send = send;
  }

  get key() {
    return this.#keys.read(this.name);
  }

  forget() {
    const key = this.key;
    if (key) this.#keys.remove(this.name, key);
  }

  fetch(url, init = {}) {
    let answer = this.#underWay.get(this.name);
    if (!answer) {
      answer = this.#once(url, init).finally(() => this.#underWay.delete(this.name));
      this.#underWay.set(this.name, answer);
    }
    return answer.then(copyOf);
  }

  async #once(url, init) {
    if ("key" in init) throw new TypeError("idempotent call: an operation has a key of its own");
    if (isSafe((init.method ?? "GET").toUpperCase())) throw new TypeError("idempotent call: an operation needs an unsafe method");
    const kept = this.key;
    const key = kept ?? this.#keys.make(this.name);
    const { response, attempts, replayed, nothingKept } = await this.#send(url, init, key, this.name);
    // Of what failed and is not kept, another run finds the steps that have succeeded under the same key.
    if (!nothingKept && isDefinite(response, replayed, kept !== undefined || attempts > 1)) this.#keys.remove(this.name, key);
    return response;
  }
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
