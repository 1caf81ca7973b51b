// How a page pays once. Each call is an operation of the client, which keeps its key until there is a definite answer, and sends
// the request again as long as there is none. The keys are derived from the cart: the same for a second click, after a reload, and
// in another tab that shows the cart. A card that was declined is the end of one wish; another card is the next one.

import { attempts, budget, createClient, IdempotencyError, operations } from "/client/index.js";
import { load, save } from "./cart.js";
import { session } from "./session.js";

/** Is told about each attempt, see what the client imports as attempts. */
export const watch = { attempt: () => {} };

const options = {
  maxAttempts: 12, // a visitor has more patience than a server
  budget: budget({ off: true }), // and there is only one
  attempts: attempts((attempt) => watch.attempt(attempt)),
};
const storage = localStorage; // which all tabs share
const client = operations(createClient(options), { storage });
const impatient = operations(createClient({ ...options, attemptTimeout: 1500 }), { storage });

const named = (c, name) => c.operation(name, { key: name });
const ordering = (cart, c = client) => named(c, `order-${cart.id}`);
const paying = (cart, c = client) => named(c, paymentName(cart));
const paymentName = (cart) => `payment-${cart.id}-${cart.declines}`;

/** Whether a payment was begun, and how it ended is not known: before a reload, or in another tab. */
export const underWay = (cart) => Boolean(ordering(cart).key ?? paying(cart).key);

/**
 * Orders what is in the cart and pays for it. Returns the cart as it stands then, and what happened: paid, declined, refused with
 * a problem, sign-in, or unknown with the error: then it may have been paid, and another call finds out.
 */
export async function pay(cart, { hurry = false } = {}) {
  const c = hurry ? impatient : client;
  try {
    const made = await order(cart, c);
    if (made.outcome) return made;
    cart = made.cart;
    const answer = await paying(cart, c).fetch("/api/v1/payments/process", post(paymentOf(cart)));
    return ended(cart, answer);
  } catch (error) {
    if (!(error instanceof IdempotencyError)) throw error; // the request could not be made
    if (error.response?.status === 401) return { cart, outcome: "sign-in" }; // an earlier attempt may have been let in
    return { cart, outcome: "unknown", error };
  }
}

/** Orders what is in the cart, once. */
export async function order(cart, c = client) {
  if (cart.order) return { cart };
  const { product, quantity } = cart;
  const answer = await ordering(cart, c).fetch("/api/v1/orders", post({ lines: [{ product, quantity }] }));
  if (answer.status !== 201) return refused(cart, answer);
  return { cart: keep({ ...cart, order: await answer.json() }) };
}

export function paymentOf({ order, card }) {
  return { order: order.id, amount: order.total, currency: order.currency, card };
}

export function post(body) {
  return { method: "POST", headers: { ...session.headers, "Content-Type": "application/json" }, body: JSON.stringify(body) };
}

/** What an answer to the payment means. */
export async function ended(cart, answer) {
  if (answer.status === 201) return { cart: keep({ ...cart, payment: await answer.json() }), outcome: "paid", answer };
  if (answer.status === 402) return { cart: keep({ ...cart, declines: cart.declines + 1 }), outcome: "declined", answer };
  return refused(cart, answer);
}

function refused(cart, answer) {
  if (answer.status === 401) return { cart, outcome: "sign-in", answer };
  return { cart, outcome: "refused", answer, problem: answer.idempotent?.problem };
}

/** Saves the cart, unless the visitor has begun another one meanwhile. */
function keep(cart) {
  return load().id === cart.id ? save(cart) : cart;
}

/** What the shop tells of the operation of the payment; undefined if it knows none. */
export async function status(cart) {
  const headers = { ...session.headers, "Idempotency-Key": `"${paymentName(cart)}"` };
  const answer = await fetch("/api/v1/operations", { headers }).catch(() => undefined);
  return answer?.ok ? answer.json() : undefined;
}
