/**
 * A clock that stands still until everything waits for it, and then goes on to the next timer at once. It takes the place of
 * the platform's own until uninstall.
 */
export class Clock {
  #timers = new Map();
  #id = 0;
  #real = { setTimeout: globalThis.setTimeout, clearTimeout: globalThis.clearTimeout, now: Date.now };
  now = Date.UTC(2026, 0, 1, 12);

  install() {
    globalThis.setTimeout = (f, ms = 0) => {
      const delay = ms > 2 ** 31 - 1 ? 1 : Math.trunc(ms); // as the platform does
      this.#timers.set(++this.#id, { at: this.now + delay, f });
      return this.#id;
    };
    globalThis.clearTimeout = (id) => this.#timers.delete(id);
    Date.now = () => this.now;
    return this;
  }

  uninstall() {
    globalThis.setTimeout = this.#real.setTimeout;
    globalThis.clearTimeout = this.#real.clearTimeout;
    Date.now = this.#real.now;
  }

  get waiting() {
    return this.#timers.size;
  }

  /** Lets run what can run without the clock. */
  async settle() {
    for (let i = 0; i < 3; i++) await new Promise((done) => setImmediate(done));
  }

  /** Goes on to the next timer. */
  async step() {
    const [id, next] = [...this.#timers].reduce((a, b) => (b[1].at < a[1].at ? b : a));
    this.#timers.delete(id);
    this.now = Math.max(this.now, next.at);
    next.f();
    await this.settle();
  }

  /** Goes on until a promise is settled, and returns what it came to. */
  async until(promise) {
    let settled = false;
    const outcome = promise.then(
      (value) => ({ value }),
      (error) => ({ error }),
    );
    outcome.then(() => (settled = true));
    await this.settle();
    while (!settled) {
      if (this.waiting === 0) throw new Error("nothing is left to wait for, and the promise is not settled");
      await this.step();
    }
    return outcome;
  }
}
