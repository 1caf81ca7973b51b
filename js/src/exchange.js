import { readProblem } from "./document.js";
import { hide } from "./hide.js";
import { within } from "./wait.js";

/**
 * Sends one request, and reads its answer to the end: one that breaks off was lost. Returns the response, its bytes and
 * its problem, or the error.
 */
export function exchange({ options, limit }, url, init) {
  return within(limit, options.attemptTimeout || Infinity, async (signal) => {
    const response = await options.fetch(url.href, { ...init, signal });
    const { status, redirected } = response;
    // Other answers have no body, or none that a page may read.
    const bytes = status > 199 && status < 600 ? await response.arrayBuffer() : undefined;
    return { response, bytes, redirected, problem: readProblem(response, bytes) };
  }).catch((error) => ({ error }));
}

/** Whether an answer was given before. */
export const replayed = ({ headers }) => headers.get("Idempotent-Replayed") === "true";

/**
 * Returns the last response of a call, whose body nobody has read, with what is told beside it. It is the platform's,
 * whatever fetch it came from.
 */
export function responseOf({ response, bytes, key, attempts, state, problem }) {
  const { url, redirected, type } = response;
  const copy = bytes ? new Response(bytes.byteLength ? bytes : null, response) : response.clone();
  const idempotent = { key, attempts, replayed: replayed(response), state, problem };
  return hide(copy, { url, redirected, type, idempotent });
}
