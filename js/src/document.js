/** The members that are known, each with a value of its type. */
const members = { type: "", title: "", status: 0, detail: "", code: "", retryable: true, state: "", operation: "" };

/**
 * Reads the problem that a response holds (RFC 9457), or, in the answer to a question about an operation, what it tells
 * of that; undefined if it is neither. A guard says in a header which problem it is (R-59a), in whatever form the body
 * tells it.
 */
export function readDocument({ status, headers }, bytes, question) {
  const failed = status >= 400;
  const media = failed ? /^application\/problem\+json\b/i : /^[^;]*[/+]json\b/i;
  const code = failed && headers.get("Idempotency-Code");
  const read = (failed || (question && status < 300)) && media.test(headers.get("Content-Type"));
  const document = read ? parseObject(new TextDecoder().decode(bytes)) : undefined;
  // A member of another type counts as absent (RFC 9457, section 3.1); members that are not known stay.
  if (document) for (const name in members) if (typeof document[name] !== typeof members[name]) delete document[name];
  return code ? { ...document, code } : document;
}

/** The object of JSON that a text holds, undefined if it is none. */
export function parseObject(text) {
  try {
    return /^\s*{/.test(text) ? JSON.parse(text) : undefined;
  } catch {
    return undefined;
  }
}
