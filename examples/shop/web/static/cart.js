// What the visitor wants to buy. It is kept where all tabs see it, and its id is where the keys of order and payment come from.

import { newKey } from "/client/index.js";

const kept = "shop:cart";

export const products = {
  "book-1": { name: "The book", price: 2450 },
  "mug-1": { name: "The mug", price: 1290 },
  "pen-1": { name: "The pen", price: 190 },
};

export const currency = "EUR";

/**
 * A cart: id, product, quantity, card, declines (how many cards were declined), and, once they are there, order and payment as
 * the shop has answered them.
 */
export function load() {
  try {
    return JSON.parse(localStorage.getItem(kept)) ?? begin();
  } catch {
    return begin();
  }
}

/** A new wish, which has nothing to do with the one before. */
export function begin(like = {}) {
  const { product = "book-1", quantity = 1, card = "tok_visa" } = like;
  return save({ id: newKey().value, product, quantity, card, declines: 0 });
}

export function save(cart) {
  localStorage.setItem(kept, JSON.stringify(cart));
  return cart;
}

/** The product or the quantity has changed: if that was ordered already, it is another wish. */
export function change(cart, { product, quantity }) {
  if (cart.product === product && cart.quantity === quantity) return cart;
  return cart.order ? begin({ ...cart, product, quantity }) : save({ ...cart, product, quantity });
}

export function total({ order, product, quantity }) {
  return order ? order.total : products[product].price * quantity;
}

/** Calls f when another tab has changed the cart. */
export function onChange(f) {
  addEventListener("storage", (event) => event.key === kept && f(load()));
}
