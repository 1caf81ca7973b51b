import { readDocument } from "./document.js";
import { Limit, unlessAborted } from "./limit.js";

/**
 * Sends one request, and reads its answer to the end: one that breaks off was lost. Returns the response and its bytes, or the
 * error, and the problem or state that is told in the body.
 */
export async function exchange(call, url, init, question) {
  const started = Date.now();
  const limit = new Limit(call.signal, call.options.attemptTimeout, "no answer within the time of an attempt");
  try {
    const signal = limit.signal;
    const response = await unlessAborted(Promise.resolve(call.options.fetch(url, { ...init, signal })), signal);
    const bytes = await unlessAborted((isUsual(response) ? response : response.clone()).arrayBuffer(), signal);
    return { response, bytes, document: readDocument(response, bytes, question), took: Date.now() - started };
  } catch (error) {
    return { error: call.signal.aborted ? call.signal.reason : error, failed: true, took: Date.now() - started };
  } finally {
    limit.close();
  }
}

const isUsual = ({ status }) => status >= 200 && status < 600;

/**
 * Returns the response of a reply, whose body nobody has read, with what is told beside it. It is the platform's, whatever
 * fetch it came from.
 */
export function responseOf({ response, bytes }, idempotent) {
  const { status, statusText, headers, url, redirected, type } = response;
  let copy = response;
  if (isUsual(response)) {
    copy = new Response([204, 205, 304].includes(status) ? null : bytes, { status, statusText, headers: [...headers] });
    for (const [name, value] of Object.entries({ url, redirected, type })) Object.defineProperty(copy, name, { value });
  }
  return idempotent ? Object.defineProperty(copy, "idempotent", { value: idempotent }) : copy;
}
