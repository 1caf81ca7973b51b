import { Code, IdempotencyError } from "./errors.js";

/**
 * Returns a body as often as it is needed, the same bytes each time, with the media type that goes with them if fetch
 * would have chosen it. What can be changed is copied before this returns; a form is written once, since each writing of it
 * has another boundary.
 */
export function keepBody(body) {
  if (body === undefined || body === null || typeof body === "string" || body instanceof Blob) {
    return Promise.resolve({ body });
  }
  const copy = new Response(body);
  return copy.arrayBuffer().then((bytes) => ({ body: bytes, type: copy.headers.get("Content-Type") }));
}

/** Refuses a body that can't be kept. */
export function checkBody(body) {
  if (!isStream(body)) return;
  const detail = "the request's body is a stream, which can't be sent again: nothing was sent";
  throw new IdempotencyError({ code: Code.bodyNotRepeatable, detail });
}

function isStream(body) {
  return typeof body === "object" && body !== null && (typeof body.getReader === "function" || Symbol.asyncIterator in body);
}
