/**
 * Runs f with a signal that fires with another one, undefined if there is none, or after so many milliseconds, if they
 * are not 0. Rejects then with the signal's reason, whatever f knows of it. Without f it sleeps for that time. Nothing
 * is left to fire.
 */
export function within(signal, ms, f) {
  const controller = new AbortController();
  const { signal: limit } = controller;
  const follow = () => controller.abort(signal.reason);
  const until = Date.now() + ms;
  let timer;
  return new Promise((done, failed) => {
    const arm = () => {
      const left = Math.ceil(until - Date.now());
      // A timer takes what is beyond 2^31 for nothing.
      if (left > 0) timer = setTimeout(arm, Math.min(left, 2e9));
      else if (f) controller.abort(new DOMException("too late", "TimeoutError"));
      else done();
    };
    limit.onabort = () => failed(limit.reason);
    signal?.addEventListener("abort", follow);
    if (signal?.aborted) return follow();
    if (ms || !f) arm();
    f?.(limit).then(done, failed);
  }).finally(() => {
    clearTimeout(timer);
    signal?.removeEventListener("abort", follow);
  });
}

/**
 * Waits until the browser is no longer known to be without a network, or has said so for 30 s: some don't see the one
 * that they have. Rejects with the signal's reason. Whether a network is known is what it returns.
 */
export async function untilOnline(signal, { waitOnline }) {
  const offline = () => waitOnline && globalThis.navigator?.onLine === false;
  for (let i = 0; i < 30 && offline(); i++) await within(signal, 1000); // a page that was frozen gets no event
  return !offline();
}
