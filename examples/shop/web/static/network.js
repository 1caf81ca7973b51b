// A cable that can be pulled out of this page. What goes to /dev/ is not part of the story, and passes.

const fetched = globalThis.fetch;
let cable = new AbortController();
const waiting = []; // for a request to be sent

/** Has the page's requests go through the cable. */
export function install() {
  globalThis.fetch = (url, init = {}) => {
    if (new URL(url, location.href).pathname.startsWith("/dev/")) return fetched(url, init);
    const signals = [cable.signal, init.signal].filter(Boolean);
    const answer = fetched(url, { ...init, signal: AbortSignal.any(signals) });
    for (const { path, done } of waiting) if (String(url).endsWith(path)) done();
    return answer;
  };
}

/** Waits until a request to a path is sent. */
export const sent = (path) => new Promise((done) => waiting.push({ path, done }));

/** Breaks what is under way, and tells the page what a browser would tell it. */
export function pull() {
  cable.abort(new TypeError("Failed to fetch"));
  Object.defineProperty(navigator, "onLine", { configurable: true, get: () => false });
  dispatchEvent(new Event("offline"));
}

export function plug() {
  cable = new AbortController();
  delete navigator.onLine;
  dispatchEvent(new Event("online"));
}
