/**
 * Runs f with a signal that fires with another one, undefined if there is none, or after so many milliseconds, which
 * may be without end. Rejects then with the signal's reason, whatever f knows of it. Nothing is left to fire.
 */
export function within(signal, ms, f) {
  const controller = new AbortController();
  const { signal: limit } = controller;
  const follow = () => controller.abort(signal.reason);
  const until = Date.now() + ms;
  let timer;
  return new Promise((done, failed) => {
    // A timer takes what is beyond 2^31 for nothing.
    const arm = () => (timer = setTimeout(over, Math.min(Math.ceil(until - Date.now()), 2e9)));
    const over = () => (Date.now() < until ? arm() : controller.abort(new DOMException("timeout", "TimeoutError")));
    limit.onabort = () => failed(limit.reason);
    signal?.addEventListener("abort", follow);
    if (signal?.aborted) return follow();
    arm();
    f(limit).then(done, failed);
  }).finally(() => {
    clearTimeout(timer);
    signal?.removeEventListener("abort", follow);
  });
}

/** Sleeps. Throws the signal's reason. */
export async function sleep(signal, ms) {
  await within(signal, ms, () => new Promise(() => {})).catch(() => {});
  signal.throwIfAborted();
}
