/** The members that are known, each with a value of its type. */
const members = { type: "", title: "", status: 0, detail: "", code: "", retryable: true, state: "", operation: "", __proto__: null };

/**
 * Reads the problem that a response holds (RFC 9457), or, in the answer to a question about an operation, what it tells of
 * that; undefined if it is neither. A guard says in a header which problem it is (R-59a), in whatever form the body tells it.
 */
export function readDocument(response, bytes, question) {
  const { status, headers } = response;
  const media = mediaOf(headers);
  const failed = status >= 400;
  const code = failed && headers.get("Idempotency-Code");
  const holds = failed ? media === "application/problem+json" : question && status < 300 && /^application\/json$|\+json$/.test(media);
  const document = holds ? read(bytes) : undefined;
  return code ? { ...document, code } : document;
}

function read(bytes) {
  const document = parseObject(new TextDecoder().decode(bytes));
  // A member of another type counts as absent (RFC 9457, section 3.1); members that are not known stay.
  const known = ([name, value]) => typeof value === typeof (members[name] ?? value);
  return document && Object.fromEntries(Object.entries(document).filter(known));
}

/** The object of JSON that a text holds, undefined if it is none. */
export function parseObject(text) {
  try {
    const value = JSON.parse(text);
    return typeof value === "object" && !Array.isArray(value) ? (value ?? undefined) : undefined;
  } catch {
    return undefined;
  }
}

/** The media type of a body, in lower case and without parameters; "" if none is named. */
export const mediaOf = (headers) => (headers.get("Content-Type") ?? "").split(";")[0].trim().toLowerCase();
