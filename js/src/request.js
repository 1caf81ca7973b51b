/**
 * Reads what fetch may be given, an address or a Request, and an init. Throws what fetch would throw on each attempt.
 * body is what is sent in each attempt, or a promise of it; stream says that it can't be sent again, and is in
 * init only. What can be changed is copied before this returns; a form is written once, since each writing of it has
 * another boundary.
 */
export function requestOf(input, init) {
  const given = { ...partsOf(input?.arrayBuffer && input), ...partsOf(init) };
  const { key, timeout = 0, body, signal, ...rest } = given;
  if (!(timeout >= 0)) throw new TypeError("not an option: timeout");
  const url = new URL(input?.url ?? input, globalThis.document?.baseURI ?? globalThis.location);
  const method = (rest.method ?? "GET").toUpperCase();
  const stream = body?.getReader || body?.[Symbol.asyncIterator];
  // What the body is, it says in its Content-Type.
  const checked = new Request(url, { ...rest, method, body: body?.headers ? undefined : body });
  const { headers } = checked;
  const sent = { ...rest, method, headers, body: stream && body };
  const request = { url, method, headers, given: key, timeout: timeout || Infinity, signal, init: sent, stream };
  if (!stream) request.body = body;
  if (Object(body) === body && !stream && !(body instanceof Blob)) {
    const source = body.headers ? body : checked;
    request.body = source.arrayBuffer().then((bytes) => (bytes.byteLength ? bytes : null));
    request.body.catch(() => {}); // it is told where it is waited for
  }
  return request;
}

/**
 * The members of an init, or the parts of a Request, which may be of another maker than the platform's, and is its own
 * body.
 */
function partsOf(object) {
  const parts = {};
  for (const name in object) parts[name] = object[name];
  if (parts.arrayBuffer) parts.body = object;
  if (parts.mode === "navigate") delete parts.mode;
  return parts;
}
