// What the card processor really charged. Its ledger is the judge: neither the page nor the shop can write into it.

import { session } from "./session.js";

const orders = new Map(); // of payments, by the payment's id

/** The last entries, oldest first. ours says that one is of this order. */
export async function entries(order) {
  const answer = await fetch("/dev/ledger");
  if (!answer.ok) throw new Error(`the ledger: ${answer.status}`);
  const last = ((await answer.json()) ?? []).filter(({ kind }) => kind !== "closure").slice(-20);
  return Promise.all(last.map(async (entry) => ({ ...entry, ours: Boolean(order) && (await orderOf(entry.reference)) === order })));
}

async function orderOf(payment) {
  if (payment && !orders.has(payment)) {
    const answer = await fetch(`/api/v1/payments/${encodeURIComponent(payment)}`, { headers: session.headers }).catch(() => undefined);
    if (!answer || answer.status >= 500) return undefined;
    orders.set(payment, answer.ok ? (await answer.json()).order : "");
  }
  return orders.get(payment);
}

/** How often, and how much, the order was charged. */
export function charged(all) {
  const charges = all.filter(({ ours, kind }) => ours && (kind === "charge" || kind === "capture"));
  return { times: charges.length, amount: charges.reduce((sum, { amount }) => sum + amount, 0) };
}
