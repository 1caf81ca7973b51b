import { replayed } from "./classify.js";
import { exchange } from "./exchange.js";

const most = 20; // redirects, as fetch follows

/**
 * Sends a request with a key, or a question about its operation, and follows redirects. In a page, or a worker, the platform does,
 * by the rules of CORS. Elsewhere a redirect takes key and body to another origin only if that is allowed by name. A
 * question is never asked elsewhere.
 */
export async function follow(call, to, init, question) {
  const { crossOrigin, header, correlationHeader } = call.options;
  const page = globalThis.location !== undefined;
  if (page && question) init = call.own ? { ...init, mode: "same-origin" } : { ...init, redirect: "error" };
  if (page || !(call.keyed || question) || (init.redirect ?? "follow") !== "follow") {
    const reply = await exchange(call, to.href, init, question);
    return { ...reply, moved: reply.response?.redirected };
  }
  let url = to;
  let next = { ...init, redirect: "manual" };
  for (let moved = false, n = 0; ; n++) {
    const reply = { ...(await exchange(call, url.href, next, question)), moved };
    const { status, headers } = reply.response ?? {};
    const location = [301, 302, 303, 307, 308].includes(status) && headers.get("Location");
    if (!location) return reply;
    url = new URL(location, url);
    const elsewhere = url.origin !== to.origin;
    const drops = status < 307 && next.method !== "GET";
    if (n === most || (elsewhere && (question || !(drops || moved || crossOrigin.includes(url.origin))))) {
      if (!question) call.last = reply;
      return { failed: true, final: true, error: new TypeError(`a redirect leads to ${url.origin}, where the key may not go`) };
    }
    const kept = new Headers(next.headers);
    if (elsewhere) for (const name of ["authorization", "cookie", correlationHeader ?? "x-correlation-id"]) kept.delete(name);
    if (drops) {
      moved = !replayed(headers); // else the redirect is the operation's own answer
      for (const name of [...kept.keys()]) if (name.startsWith("content-") || name === header.toLowerCase()) kept.delete(name);
      next = { ...next, method: "GET", body: undefined };
    }
    next.headers = kept;
  }
}
