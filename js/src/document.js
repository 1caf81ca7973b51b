/** The members that are known, each with a value of its type. */
const members = { type: "", title: "", status: 0, detail: "", code: "", retryable: true };

/**
 * Reads the problem that a response holds (RFC 9457), undefined if none. A guard says in a header which problem it is
 * (R-59a), in whatever form the body tells it.
 */
export function readProblem({ status, headers }, bytes) {
  if (status < 400) return undefined;
  const code = headers.get("Idempotency-Code");
  const told = /problem\+json/i.test(headers.get("Content-Type"));
  const problem = told ? parseObject(new TextDecoder().decode(bytes)) : undefined;
  // A member of another type counts as absent (RFC 9457, section 3.1); members that are not known stay.
  if (problem) for (const name in members) if (typeof problem[name] !== typeof members[name]) delete problem[name];
  return code ? { ...problem, code } : problem;
}

/** The object of JSON that a text holds, undefined if it is none. */
export function parseObject(text) {
  try {
    return /^\s*{/.test(text) ? JSON.parse(text) : undefined;
  } catch {
    return undefined;
  }
}
