// A cable that can be pulled out of this page. What goes to /dev/ is not part of the story, and passes.

const fetched = globalThis.fetch;
let cable = new AbortController();

/** Has the page's requests go through the cable. */
export function install() {
  globalThis.fetch = (url, init = {}) => {
    if (new URL(url, location.href).pathname.startsWith("/dev/")) return fetched(url, init);
    const signals = [cable.signal, init.signal].filter(Boolean);
    return fetched(url, { ...init, signal: AbortSignal.any(signals) });
  };
}

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
