const token = 1_000_000;

/** The repeats that are paid for, in millionths, so that ten tenths are one. */
export class Budget {
  #tokens;
  #share;
  #burst;

  constructor({ off = false, share = 0.1, burst = 10 } = {}) {
    this.#share = Math.round(share * token);
    this.#burst = off ? Infinity : burst * token;
    this.#tokens = this.#burst;
  }

  /** Is called once a call. */
  deposit() {
    this.#tokens = Math.min(this.#burst, this.#tokens + this.#share);
  }

  /** Pays for a repeat, and reports whether it could. */
  withdraw() {
    if (this.#tokens < token) return false;
    this.#tokens -= token;
    return true;
  }
}
