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

/** Waits so many milliseconds, or rejects with the signal's reason. */
export function sleep(ms, signal) {
  return orAborted(signal, (done) => after(ms, done));
}

/** Waits until the browser is no longer known to be without a network, or rejects with the signal's reason. */
export async function untilOnline(signal) {
  while (globalThis.navigator?.onLine === false) {
    await orAborted(signal, (done) => {
      globalThis.addEventListener("online", done);
      return () => globalThis.removeEventListener("online", done);
    });
  }
}

/** Waits for what start tells done, or rejects with the signal's reason; what start returns undoes it. */
function orAborted(signal, start) {
  return new Promise((resolve, reject) => {
    signal.throwIfAborted();
    const end = (settle) => {
      undo();
      signal.removeEventListener("abort", aborted);
      settle();
    };
    const aborted = () => end(() => reject(signal.reason));
    const undo = start(() => end(resolve));
    signal.addEventListener("abort", aborted);
  });
}
