// The page: what it shows in each phase, and what its buttons do. How it pays is in checkout.js.

import * as carts from "./cart.js";
import * as checkout from "./checkout.js";
import { money } from "./money.js";
import * as naive from "./naive.js";
import { open, session, signIn, signOut } from "./session.js";
import * as workbench from "./workbench.js";

const lost = ["IDEMPOTENCY_OUTCOME_UNKNOWN", "IDEMPOTENCY_REPLAY_UNAVAILABLE", "IDEMPOTENCY_KEY_EXPIRED"];
const $ = (id) => document.getElementById(id);
const form = $("form");

let cart = carts.load();
let phase = "loading"; // then idle, paying, declined, refused, failed, unknown, lookup, paid, or sign-in
let notice = "";
let progress = "";
let paying = 0; // clicks whose payments are under way

/** Pays, as a click on the button does. Returns false if it looks to the visitor as if it had to be tried again. */
async function pay(options) {
  if (phase === "loading" || phase === "sign-in") return false;
  const { pay } = workbench.mode() === "semel" ? checkout : naive;
  const { id } = cart;
  paying++;
  turn("paying");
  workbench.begins(cart);
  const result = await pay(cart, options).catch((error) => ({ cart, outcome: "failed", error }));
  paying--;
  workbench.ended(result);
  if (cart.id !== id || phase === "paid") return true;
  cart = result.cart;
  if (result.outcome === "paid" || paying === 0) turn(...next(result));
  return ["paid", "declined", "refused"].includes(result.outcome);
}

/** The phase after a payment, and what is said about it. */
function next({ outcome, error, problem }) {
  switch (outcome) {
    case "paid":
      return ["paid"];
    case "declined":
      return ["declined", "Your bank declined this card. Nothing was charged. Please choose another card."];
    case "refused":
      if (problem?.code === "out_of_stock") return ["refused", "Sorry, there are not that many left. Please order fewer."];
      return ["refused", problem?.detail ?? "The shop can’t take this order."];
    case "sign-in":
      signOut();
      return ["sign-in"];
    case "failed":
      return ["failed", "The payment has failed. Please try again."];
  }
  if (error.code === "IDEMPOTENCY_KEY_REUSED") {
    cart = carts.load();
    return ["refused", "This order was changed in another tab. Please look at it again."];
  }
  if (lost.includes(error.code) || error.reason === "retention") return ["lookup", "We are looking up what became of your payment. Please don’t pay again: we will tell you."];
  return ["unknown", "We don’t know yet whether your payment went through. Check again: you will not pay twice."];
}

function turn(to, text = "") {
  const from = phase;
  phase = to;
  notice = text;
  progress = to === "paying" ? "Talking to your bank. You can’t pay twice." : "";
  if (to === "paying" && workbench.mode() === "naive") progress = "Talking to your bank. Please don’t click twice!";
  render();
  if (to === "paid" && from === "paying") $("receipt-title").focus();
}

function render() {
  workbench.shows(cart);
  document.body.dataset.phase = phase;
  document.title = `${{ paying: "Paying…", paid: "Paid" }[phase] ?? "Checkout"} · Second Edition`;
  $("sign-in").hidden = phase !== "sign-in";
  form.hidden = ["loading", "sign-in", "paid"].includes(phase);
  $("receipt").hidden = phase !== "paid";

  const open = phase === "paying" || phase === "unknown" || phase === "lookup";
  $("what").disabled = $("how").disabled = open;
  form.elements.product.value = cart.product;
  form.elements.card.value = cart.card;
  if (document.activeElement !== form.elements.quantity) form.elements.quantity.value = cart.quantity;
  const sum = money(carts.total(cart), carts.currency);
  $("items").textContent = `${cart.quantity} × ${carts.products[cart.product].name.toLowerCase()}`;
  $("total").value = sum;
  $("pay").hidden = phase === "lookup";
  $("pay").setAttribute("aria-disabled", String(phase === "paying"));
  $("pay-text").textContent = { paying: "Paying…", unknown: "Check again" }[phase] ?? `Pay ${sum}`;
  $("progress").textContent = progress;
  $("alert").hidden = !notice;
  $("alert").className = `notice ${phase === "unknown" || phase === "lookup" ? "warn" : "bad"}`;
  if ($("alert").textContent !== notice) $("alert").textContent = notice;

  if (phase === "paid") {
    const { name } = carts.products[cart.product];
    $("receipt-text").textContent = `You have paid ${money(cart.payment.amount, cart.payment.currency)}.`;
    $("receipt-order").textContent = cart.order.id;
    $("receipt-payment").textContent = cart.payment.id;
    $("receipt-items").textContent = `${cart.quantity} × ${name}`;
  }
}

/** Begins another order, of the same. */
function fresh() {
  cart = carts.begin(cart);
  turn("idle");
  workbench.forget();
}

form.addEventListener("submit", (event) => {
  event.preventDefault();
  $("pay").focus();
  pay();
});

form.addEventListener("input", () => {
  const { product, card, quantity } = form.elements;
  const valid = quantity.validity.valid;
  cart = carts.change(cart, { product: product.value, quantity: valid ? quantity.valueAsNumber : cart.quantity });
  cart = carts.save({ ...cart, card: card.value });
  turn("idle");
});

for (const [id, step] of [
  ["fewer", -1],
  ["more", 1],
]) {
  $(id).addEventListener("click", () => {
    const { quantity } = form.elements;
    if (step > 0) quantity.stepUp();
    else quantity.stepDown();
    quantity.dispatchEvent(new Event("input", { bubbles: true }));
  });
}

$("again").addEventListener("click", () => {
  fresh();
  form.elements.product.value = cart.product;
  $("title").scrollIntoView({ block: "nearest" });
  form.querySelector("[name=product]:checked").focus();
});

$("sign-in-form").addEventListener("submit", (event) => {
  event.preventDefault();
  signIn($("token").value.trim());
  begin();
});

carts.onChange((changed) => {
  if (phase === "paying" || phase === "sign-in") return;
  if (changed.id === cart.id && changed.payment === undefined && phase !== "idle") return;
  cart = changed;
  turn(cart.payment ? "paid" : "idle");
});

addEventListener("offline", () => {
  if (phase === "paying") $("progress").textContent = "You are offline. The payment goes on when you are back.";
});
addEventListener("online", () => ($("progress").textContent = progress));

/** Shows the cart as it was left, and goes on with a payment that a reload has cut. */
async function begin() {
  const hands = { pay, fresh, busy: () => paying > 0, resumed: false };
  if (session.dev) await workbench.open(hands);
  turn(cart.payment ? "paid" : "idle");
  if (!cart.payment && workbench.mode() === "semel" && checkout.underWay(cart)) {
    hands.resumed = true;
    pay();
  }
  if (session.dev) await workbench.resume(hands);
}

for (const price of document.querySelectorAll("[data-price]")) {
  price.textContent = money(carts.products[price.dataset.price].price, carts.currency);
}
if (await open()) await begin();
else turn("sign-in");
