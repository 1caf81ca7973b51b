/** Calls f after so many milliseconds, not earlier; returns how to take that back. */
function after(ms, f) {
  const until = Date.now() + ms;
  let timer;
  const arm = () => {
    const left = Math.max(0, Math.ceil(until - Date.now()));
    timer = left < 2 ** 31 ? setTimeout(f, left) : setTimeout(arm, 2 ** 31 - 1); // what is more, it takes for nothing
  };
  arm();
  return () => clearTimeout(timer);
}

/**
 * What ends a call, or an attempt, from outside: a signal, if there is one, and a time in milliseconds, if it is not 0. It is
 * closed in the end: a signal that fires later must not break the answer that was returned.
 */
export function limitOf({ signal, timeout = 0 }) {
  if (!Number.isFinite(timeout) || timeout < 0) throw new TypeError("timeout is no number of milliseconds");
  if (signal && !signal.addEventListener) throw new TypeError("signal is no AbortSignal");
  const controller = new AbortController();
  const follow = () => controller.abort(signal.reason);
  if (signal?.aborted) follow();
  signal?.addEventListener("abort", follow);
  const late = () => controller.abort(new DOMException(`no answer within ${timeout} ms`, "TimeoutError"));
  const deadline = timeout ? Date.now() + timeout : Infinity;
  const stop = timeout ? after(timeout, late) : undefined;
  const close = () => {
    signal?.removeEventListener("abort", follow);
    stop?.();
  };
  return { signal: controller.signal, deadline, close };
}

/** Waits so many milliseconds, or rejects with the signal's reason. */
export const sleep = (ms, signal) => orAborted(signal, (done) => after(ms, done));

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
export const unlessAborted = (promise, signal) => orAborted(signal, (done, failed) => void promise.then(done, failed));

/** Waits for what start tells done, or failed, or rejects with the signal's reason; what start returns undoes it. */
async function orAborted(signal, start) {
  let aborted;
  let undo;
  try {
    return await new Promise((done, failed) => {
      undo = start(done, failed);
      aborted = () => failed(signal.reason);
      if (signal.aborted) aborted();
      signal.addEventListener("abort", aborted);
    });
  } finally {
    undo?.();
    signal.removeEventListener("abort", aborted);
  }
}
