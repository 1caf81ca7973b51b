import { readDocument } from "./document.js";
import { limitOf, unlessAborted } from "./limit.js";

/**
 * Sends one request, and reads its answer to the end: one that breaks off was lost. Returns the response and its bytes, or the
 * error, and the problem or state that is told in the body.
 */
export async function exchange({ options, signal: given }, url, init, question) {
  const started = Date.now();
  const { signal, close } = limitOf({ signal: given, timeout: options.attemptTimeout });
  const read = async () => {
    const response = await options.fetch(url, { ...init, signal });
    const bytes = await (isUsual(response) ? response : response.clone()).arrayBuffer();
    return { response, bytes, document: readDocument(response, bytes, question) };
  };
  let reply;
  try {
    reply = await unlessAborted(read(), signal);
  } catch (error) {
    reply = { error: given.aborted ? given.reason : error, failed: true };
  }
  close();
  return { ...reply, took: Date.now() - started };
}

const isUsual = ({ status }) => status >= 200 && status < 600;

/**
 * Returns the response of a reply, whose body nobody has read, with what is told beside it. It is the platform's, whatever
 * fetch it came from.
 */
export function responseOf({ response, bytes }, idempotent) {
  const { status, headers } = response;
  let copy = response;
  const define = (name, value) => Object.defineProperty(copy, name, { value });
  if (isUsual(response)) {
    const body = [204, 205, 304].includes(status) ? null : bytes;
    copy = new Response(body, { status, statusText: response.statusText, headers: [...headers] });
    for (const name of ["url", "redirected", "type"]) define(name, response[name]);
  }
  return idempotent ? define("idempotent", idempotent) : copy;
}
