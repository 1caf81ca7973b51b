// The same without semel, as it is written every day: a fetch, and another one if there is no answer. The shop takes no payment
// without a key, so each attempt has one of its own. That is like having none: to the shop each is another wish.

import { newKey } from "/client/index.js";
import { ended, order, paymentOf, post, watch } from "./checkout.js";

export async function pay(cart, { hurry = false } = {}) {
  const made = await order(cart);
  if (made.outcome) return made;
  cart = made.cart;
  for (let number = 1; number <= 3; number++) {
    const init = post(paymentOf(cart));
    init.headers["Idempotency-Key"] = `"${newKey().value}"`;
    if (hurry) init.signal = AbortSignal.timeout(1500);
    const again = number < 3;
    try {
      const answer = await fetch("/api/v1/payments/process", init);
      const { status } = answer;
      if (status < 500) {
        const end = await ended(cart, answer);
        watch.attempt({ kind: "request", number, status });
        return end;
      }
      watch.attempt({ kind: "request", number, status, again });
    } catch (error) {
      watch.attempt({ kind: "request", number, error, again });
    }
    await new Promise((done) => setTimeout(done, 300));
  }
  return { cart, outcome: "failed" };
}
