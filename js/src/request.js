const members = "url,method,headers,mode,credentials,cache,redirect,referrer,referrerPolicy,integrity,keepalive,signal".split(",");

/**
 * Reads what fetch may be given, an address or a Request, and an init. body is a promise of what is sent in each attempt,
 * with the media type that goes with it if fetch would have chosen it; undefined if it is a stream. What can be changed is
 * copied before this returns; a form is written once, since each writing of it has another boundary.
 */
export function requestOf(input, init) {
  const { url: at = input, key, timeout, body, ...rest } = { ...partsOf(input), ...(partsOf(init) ?? init), url: input?.url };
  const url = new URL(at, globalThis.document?.baseURI ?? globalThis.location?.href);
  const method = (rest.method ?? "GET").toUpperCase();
  const headers = new Headers(rest.headers && [...new Headers(rest.headers)]);
  const request = { url, method, headers, key, timeout, signal: rest.signal, init: { ...rest, method, headers } };
  if (body != null) request.init.body = isStream(body) ? body : ""; // which body is sent is seen when all of it is there
  if (!isStream(body)) request.body = keep(body);
  request.body?.catch(() => {}); // it is told where it is waited for
  return request;
}

/**
 * The parts of a Request, which may be of another maker than the platform's; undefined if it is none. Its body is read when keep
 * calls it.
 */
function partsOf(request) {
  if (typeof request?.url !== "string" || !request.arrayBuffer) return undefined;
  const parts = {};
  for (const name of members) if (request[name] != null) parts[name] = request[name];
  if (parts.mode === "navigate") delete parts.mode;
  if (request.body !== null && !["GET", "HEAD"].includes(request.method)) parts.body = () => request.arrayBuffer();
  return parts;
}

async function keep(body) {
  if (typeof body === "function") return { body: await body() };
  if (body == null || typeof body === "string" || body instanceof Blob) return { body: body ?? undefined };
  const copy = new Response(body);
  return { body: await copy.arrayBuffer(), type: copy.headers.get("Content-Type") };
}

const isStream = (body) => body != null && typeof body === "object" && Boolean(body.getReader || Symbol.asyncIterator in body);
