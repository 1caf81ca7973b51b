const members = "url,method,headers,mode,credentials,cache,redirect,referrer,referrerPolicy,integrity,keepalive,signal".split(",");

/**
 * Reads what fetch may be given, an address or a Request, and an init. body is a promise of what is sent in each attempt,
 * with the media type that goes with it if fetch would have chosen it; undefined if it is a stream. What can be changed is
 * copied before this returns; a form is written once, since each writing of it has another boundary.
 */
export function requestOf(input, init) {
  const given = isRequest(init) ? partsOf(init) : (init ?? {});
  const { url: at, key, timeout, body, ...rest } = { ...(isRequest(input) ? partsOf(input) : undefined), ...given, url: input?.url ?? input };
  const url = new URL(at, globalThis.document?.baseURI ?? globalThis.location?.href);
  const method = (rest.method ?? "GET").toUpperCase();
  const headers = new Headers(rest.headers && [...new Headers(rest.headers)]);
  const request = { url, method, headers, key, timeout, signal: rest.signal, init: { ...rest, method, headers } };
  if (body != null) request.init.body = isStream(body) ? body : ""; // which body is sent is seen when all of it is there
  if (!isStream(body)) request.body = keep(body);
  request.body?.catch(() => {}); // it is told where it is waited for
  return request;
}

const isRequest = (value) => typeof value?.url === "string" && typeof value.arrayBuffer === "function";

/** The parts of a Request, which may be of another maker than the platform's. Its body is read when keep calls it. */
function partsOf(request) {
  const parts = {};
  for (const name of members) if (request[name] != null) parts[name] = request[name];
  if (parts.mode === "navigate") delete parts.mode;
  if (request.body !== null && !["GET", "HEAD"].includes(request.method)) parts.body = () => request.arrayBuffer();
  return parts;
}

async function keep(body) {
  if (body == null || typeof body === "string" || body instanceof Blob) return { body: body ?? undefined };
  if (typeof body === "function") return { body: await body() };
  const copy = new Response(body);
  return { body: await copy.arrayBuffer(), type: copy.headers.get("Content-Type") };
}

function isStream(body) {
  return typeof body === "object" && body !== null && (typeof body.getReader === "function" || Symbol.asyncIterator in body);
}

/** Stands for a request in a few characters, so that another one under the same name is seen; it protects from mistakes only. */
export async function digestOf({ url, method, body }) {
  const { body: kept, type } = (await body) ?? {};
  const bytes = new Uint8Array(await new Response(kept).arrayBuffer());
  let text = `${method} ${url.href} ${new TextDecoder("latin1").decode(bytes)}`;
  const boundary = /boundary=(.+)/.exec(type ?? "")?.[1];
  if (boundary) text = text.replaceAll(boundary, "");
  let a = 0xdeadbeef;
  let b = 0x41c6ce57;
  for (let i = 0; i < text.length; i++) {
    a = Math.imul(a ^ text.charCodeAt(i), 0x9e3779b1);
    b = Math.imul(b ^ text.charCodeAt(i), 0x5f356495);
  }
  a = Math.imul(a ^ (a >>> 16), 0x85ebca6b) ^ Math.imul(b ^ (b >>> 13), 0xc2b2ae35);
  b = Math.imul(b ^ (b >>> 16), 0x85ebca6b) ^ Math.imul(a ^ (a >>> 13), 0xc2b2ae35);
  return (b >>> 0).toString(36) + (a >>> 0).toString(36);
}
