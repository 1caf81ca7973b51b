const members = { status: "number", retryable: "boolean" };
for (const name of ["type", "title", "detail", "code", "state", "operation"]) members[name] = "string";

/**
 * Reads the problem that a response holds (RFC 9457), or, in the answer to a question about an operation, what it tells of
 * that; undefined if it is neither. A guard says in a header which problem it is (R-59a), in whatever form the body tells it.
 */
export function readDocument(response, bytes, question) {
  const document = readBody(response, bytes, question);
  const code = response.status >= 400 ? response.headers.get("Idempotency-Code") : null;
  return code ? { ...document, code } : document;
}

function readBody(response, bytes, question) {
  const media = mediaType(response.headers);
  const problem = response.status >= 400 && media === "application/problem+json";
  const state = question && response.status < 300 && (media === "application/json" || media.endsWith("+json"));
  if (!problem && !state) return undefined;
  let document;
  try {
    document = JSON.parse(new TextDecoder().decode(bytes));
  } catch {
    return undefined;
  }
  if (document === null || typeof document !== "object" || Array.isArray(document)) return undefined;
  // A member of another type counts as absent (RFC 9457, section 3.1); members that are not known stay.
  const read = ([name, value]) => !Object.hasOwn(members, name) || typeof value === members[name];
  return Object.fromEntries(Object.entries(document).filter(read));
}

function mediaType(headers) {
  return (headers.get("Content-Type") ?? "").split(";")[0].trim().toLowerCase();
}
