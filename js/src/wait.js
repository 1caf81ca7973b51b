/**
 * Runs f with a signal that fires with another one, undefined if there is none, or after so many milliseconds, which
 * may be without end, with what over makes of that. Rejects then with the signal's reason, whatever f knows of it.
 * Nothing is left to fire.
 */
export function within(signal, ms, f, over = (error) => error) {
  const controller = new AbortController();
  const { signal: limit } = controller;
  const until = Math.ceil(Date.now() + ms);
  let timer;
  const check = () => {
    if (signal?.aborted) controller.abort(signal.reason);
    else if (timer && !(Date.now() < until)) controller.abort(over(new DOMException("TimeoutError", "TimeoutError")));
    else timer = setTimeout(check, Math.min(until - Date.now(), 2e9)); // it takes what is beyond 2^31 for nothing
  };
  return new Promise((done, failed) => {
    limit.onabort = () => failed(limit.reason);
    signal?.addEventListener("abort", check);
    check();
    if (!limit.aborted) f(limit).then(done, failed);
  }).finally(() => {
    clearTimeout(timer);
    signal?.removeEventListener("abort", check);
  });
}

/** Sleeps. Throws the signal's reason. */
export const sleep = (signal, ms) =>
  within(signal, ms, () => new Promise(() => {})).catch(() => signal.throwIfAborted());
