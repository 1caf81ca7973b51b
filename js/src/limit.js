const longestTimer = 2 ** 31 - 1; // what is more, setTimeout takes for nothing

/** Calls f after so many milliseconds, not earlier; returns how to take that back. */
function after(ms, f) {
  const until = Date.now() + ms;
  let timer;
  const arm = () => {
    const left = Math.max(0, Math.ceil(until - Date.now()));
    timer = left > longestTimer ? setTimeout(arm, longestTimer) : setTimeout(f, left);
  };
  arm();
  return () => clearTimeout(timer);
}

/**
 * What ends a call, or an attempt, from outside: a signal, if there is one, and a time in milliseconds, if it is not 0. It is
 * closed in the end: a signal that fires later must not break the answer that was returned.
 */
export class Limit {
  #controller = new AbortController();
  #undo = [];

  constructor(signal, timeout, text) {
    this.deadline = timeout > 0 ? Date.now() + timeout : Infinity;
    if (signal?.aborted) {
      this.#controller.abort(signal.reason);
      return;
    }
    if (signal) {
      const follow = () => this.#controller.abort(signal.reason);
      signal.addEventListener("abort", follow, { once: true });
      this.#undo.push(() => signal.removeEventListener("abort", follow));
    }
    if (timeout > 0) {
      this.#undo.push(after(timeout, () => this.#controller.abort(new DOMException(text, "TimeoutError"))));
    }
  }

  get signal() {
    return this.#controller.signal;
  }

  close() {
    for (const undo of this.#undo) undo();
  }
}

/** What ends a call, as its init says. */
export function limitOf({ signal, timeout = 0 }) {
  if (!Number.isFinite(timeout) || timeout < 0) throw new TypeError("idempotent call: timeout is not a number of milliseconds");
  if (signal && typeof signal.addEventListener !== "function") throw new TypeError("idempotent call: signal is not an AbortSignal");
  return new Limit(signal, timeout, "the call's time is over");
}

/** Waits so many milliseconds, or rejects with the signal's reason. */
export function sleep(ms, signal) {
  return orAborted(signal, (done) => after(ms, done));
}

/** For how long a browser is believed that it is without a network: some don't see the one that they have. */
const belief = 30_000;

/**
 * Waits until the browser is no longer known to be without a network, or has said so for as long as it is believed; rejects with
 * the signal's reason. Whether a network is known is what it returns.
 */
export async function untilOnline(signal) {
  const offline = () => globalThis.navigator?.onLine === false;
  const until = Date.now() + belief;
  while (offline() && Date.now() < until) {
    await orAborted(signal, (done) => {
      globalThis.addEventListener?.("online", done);
      const stop = after(until - Date.now(), done);
      return () => {
        globalThis.removeEventListener?.("online", done);
        stop();
      };
    });
  }
  return !offline();
}

/** Waits for a promise, which may know nothing of the signal, or rejects with the signal's reason. */
export function unlessAborted(promise, signal) {
  return orAborted(signal, (done, failed) => {
    promise.then(done, failed);
    return () => {};
  });
}

/** Waits for what start tells done, or failed, or rejects with the signal's reason; what start returns undoes it. */
function orAborted(signal, start) {
  return new Promise((resolve, reject) => {
    const end = (settle, value) => {
      undo();
      signal.removeEventListener("abort", aborted);
      settle(value);
    };
    const aborted = () => end(reject, signal.reason);
    const undo = start(
      (value) => end(resolve, value),
      (error) => end(reject, error),
    );
    if (signal.aborted) aborted();
    else signal.addEventListener("abort", aborted);
  });
}
