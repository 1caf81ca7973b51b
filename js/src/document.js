/** The members that are known, each with a value of its type. */
const members = { type: "", title: "", status: 0, detail: "", code: "", retryable: true };

/**
 * Reads the problem that a response holds (RFC 9457), undefined if none. A guard says in a header which problem it is
 * (R-59a), in whatever form the body tells it.
 */
export function readProblem({ status, headers }, bytes) {
  if (!(status >= 400)) return undefined;
  const code = headers.get("Idempotency-Code");
  const problem = /^application\/problem\+json\b/i.test(headers.get("Content-Type")) ? parseObject(bytes) : undefined;
  // A member of another type counts as absent (RFC 9457, section 3.1); members that are not known stay.
  if (problem) for (const name in members) if (typeof problem[name] !== typeof members[name]) delete problem[name];
  return code ? { ...problem, code } : problem;
}

/** The object of JSON that bytes hold, or a text, undefined if it is none. */
export function parseObject(bytes) {
  try {
    const text = bytes.big ? bytes : new TextDecoder().decode(bytes);
    return /^\s*{/.test(text) ? JSON.parse(text) : undefined;
  } catch {
    return undefined;
  }
}
