import { readDocument } from "./document.js";
import { Limit, unlessAborted } from "./limit.js";

/**
 * Sends one request, and reads its answer to the end: one that breaks off was lost. Returns the response, whose body can
 * still be read, or the error, and the problem or state that is told in the body.
 */
export async function exchange(call, url, init, question) {
  const started = Date.now();
  const limit = new Limit(call.signal, call.options.attemptTimeout, "no answer within the time of an attempt");
  try {
    const signal = limit.signal;
    const response = await unlessAborted(Promise.resolve(call.options.fetch(url, { ...init, signal })), signal);
    const bytes = await unlessAborted(response.clone().arrayBuffer(), signal);
    return { response, document: readDocument(response, bytes, question), took: Date.now() - started };
  } catch (error) {
    return { error: call.signal.aborted ? call.signal.reason : error, failed: true, took: Date.now() - started };
  } finally {
    limit.close();
  }
}
