import { readDocument } from "./document.js";
import { within } from "./wait.js";

/**
 * Sends one request, and reads its answer to the end: one that breaks off was lost. Returns the response and its bytes,
 * or the error, and the problem or state that is told in the body.
 */
export async function exchange({ options, limit }, url, init, question) {
  const started = Date.now();
  let reply;
  try {
    reply = await within(limit, options.attemptTimeout, async (signal) => {
      const response = await options.fetch(url.href, { ...init, signal });
      const { status } = response;
      // Other answers have no body, or none that a page may read.
      const bytes = status > 199 && status < 600 ? await response.arrayBuffer() : undefined;
      return { response, bytes, document: readDocument(response, bytes, question), moved: response.redirected };
    });
  } catch (error) {
    reply = { error };
  }
  return { ...reply, took: Date.now() - started };
}

/**
 * Returns the response of a reply, whose body nobody has read, with what is told beside it. It is the platform's,
 * whatever fetch it came from.
 */
export function responseOf({ response, bytes, idempotent }) {
  const { status, url, redirected, type } = response;
  const copy = bytes ? new Response(/[23]04|205/.test(status) ? null : bytes, response) : response.clone();
  for (const [name, value] of Object.entries({ url, redirected, type, idempotent })) {
    Object.defineProperty(copy, name, { value });
  }
  return copy;
}
