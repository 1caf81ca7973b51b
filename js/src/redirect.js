import { exchange, replayed } from "./exchange.js";

/**
 * Sends a request, and follows redirects of one with a key. In a page, or a worker, the platform does, by the rules of
 * CORS. Elsewhere a redirect takes key and body to another origin only if that is allowed by name.
 */
export async function follow(call, url, init, moved = false, left = 20) {
  const { crossOrigin, header, correlationHeader } = call.options;
  const manual = !globalThis.location && call.key && (init.redirect ?? "follow") === "follow";
  const reply = await exchange(call, url, manual ? { ...init, redirect: "manual" } : init);
  const { status, headers } = reply.response ?? {};
  reply.redirected ||= moved;
  const location = manual && [301, 302, 303, 307, 308].includes(status) && headers.get("Location");
  if (!location) return reply;
  const to = new URL(location, url);
  const elsewhere = to.origin !== call.url.origin;
  const drops = status < 307 && init.method !== "GET";
  if (!left || (elsewhere && !(drops || moved || crossOrigin.includes(to.origin)))) {
    return { ...reply, final: true, error: new TypeError(`the key may not go to ${to.origin}`) };
  }
  const kept = new Headers(init.headers);
  const gone = elsewhere ? ["authorization", "cookie", correlationHeader ?? "x-correlation-id"] : [];
  if (drops) gone.push(header, ...[...kept.keys()].filter((name) => name.startsWith("content-")));
  for (const name of gone) kept.delete(name);
  const next = { ...init, headers: kept };
  if (drops) Object.assign(next, { method: "GET", body: undefined });
  // A replay that leads elsewhere is the operation's own answer.
  return follow(call, to, next, drops ? !replayed(reply.response) : moved, left - 1);
}
