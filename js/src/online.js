import { sleep } from "./wait.js";

/**
 * Waits until the browser is no longer known to be without a network, or has said so for 30 s: some don't see the one
 * that they have. Throws the signal's reason. Whether a network is known is what it returns.
 */
export async function untilOnline(signal) {
  const offline = () => globalThis.navigator?.onLine === false;
  for (let i = 0; i < 30 && offline(); i++) await sleep(signal, 1000); // a page that was frozen gets no event
  return !offline();
}
