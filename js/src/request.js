/**
 * Reads what fetch may be given, an address or a Request, and an init. Throws what fetch would throw on each attempt.
 * body is what is sent in each attempt, or a promise of it; stream says that it can't be sent again, and is in
 * init only. What can be changed is copied before this returns; a form is written once, since each writing of it has
 * another boundary.
 */
export function requestOf(input, init) {
  const given = { ...partsOf(input?.url && input), ...partsOf(init) };
  const { key, timeout = 0, body, signal, ...rest } = given;
  if (!(timeout >= 0)) throw new TypeError("not an option: timeout");
  const url = new URL(input?.url ?? input, globalThis.document?.baseURI ?? globalThis.location);
  const method = (rest.method ?? "GET").toUpperCase();
  const stream = body?.getReader || body?.[Symbol.asyncIterator];
  // What the body is, it says in its Content-Type.
  const checked = new Request(url, { ...rest, method, body: body?.headers ? undefined : body });
  const { headers } = checked;
  let sent = stream ? undefined : body;
  if (Object(sent) === sent && !(sent instanceof Blob)) {
    const source = sent.headers ? sent : checked;
    sent = source.arrayBuffer().then((bytes) => (bytes.byteLength ? bytes : null));
    sent.catch(() => {}); // it is told where it is waited for
  }
  const parts = { ...rest, method, headers, body: stream && body };
  return { url, method, headers, init: parts, stream, body: sent, signal, timeout: timeout || Infinity, given: key };
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
