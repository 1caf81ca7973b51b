// The panel beside the checkout: what the card processor really charged, what the shop knows of the operation, and the scenes.

import { status, watch } from "./checkout.js";
import { charged, entries } from "./ledger.js";
import { money } from "./money.js";
import { install } from "./network.js";
import { faults, resume as resumeScene, scenes } from "./scenes.js";

const $ = (id) => document.getElementById(id);
const kept = "shop:mode";
const sleep = (ms) => new Promise((done) => setTimeout(done, ms));

let hands;
let order; // whose charges are counted
let tried; // the cart whose payment was tried last; undefined: none was
let scene; // the name of the one that is played
let looked = false; // at how the operation has ended

/** How the page pays: semel or naive. */
export const mode = () => localStorage.getItem(kept) ?? "semel";

/** Shows the panel. */
export async function open(given) {
  hands = given;
  install();
  for (const panel of document.querySelectorAll(".bench")) panel.hidden = false;
  for (const choice of document.getElementsByName("mode")) {
    choice.checked = choice.value === mode();
    choice.addEventListener("change", () => {
      localStorage.setItem(kept, choice.value);
      showMode();
    });
  }
  for (const button of document.querySelectorAll("[data-scene]")) button.addEventListener("click", () => play(button.dataset.scene));
  showMode();
  showOperation();
  await look();
  watchLedger();
}

/** Goes on with a scene that was begun before a reload, or in another tab. */
export const resume = (given) => resumeScene(given);

/** The page shows a cart: the charges for its order are counted. */
export function shows(cart) {
  if (cart.order?.id === order) return;
  order = cart.order?.id;
  if (hands) look();
}

/** A payment of a cart begins. */
export function begins(cart) {
  if (tried?.id !== cart.id) forget();
  tried = cart;
  looked = false;
}

/** A payment has ended. */
export function ended({ cart, answer }) {
  shows(cart);
  if (answer?.idempotent?.replayed) say("", "That was the first answer again: nothing was run a second time.");
  looked = false;
  if (hands) look();
}

/** Another order begins. */
export function forget() {
  order = tried = undefined;
  $("attempts").replaceChildren();
  showOperation();
  if (hands) look();
}

async function play(name) {
  if (scene || hands.busy()) return;
  scene = name;
  showScene("");
  hands.fresh();
  try {
    await faults();
    await scenes[name](hands);
    showScene("");
  } catch (error) {
    showScene(error.message);
  } finally {
    scene = undefined;
    await faults().catch(() => {});
    showScene($("scene-text").textContent);
  }
}

function showScene(text) {
  $("scene-text").textContent = text;
  for (const button of document.querySelectorAll("[data-scene]")) {
    button.setAttribute("aria-disabled", String(Boolean(scene)));
    button.setAttribute("aria-pressed", String(button.dataset.scene === scene));
  }
}

function showMode() {
  $("mode-text").textContent =
    mode() === "semel"
      ? "The page uses @semelhq/client: one key for one wish, sent until there is an answer."
      : "A plain fetch, and another one if there is no answer. Each is a new payment to the shop.";
}

// The ledger

let looking = false;

async function look() {
  if (looking) return;
  looking = true;
  try {
    const all = await entries(order);
    showVerdict(charged(all));
    $("ledger").replaceChildren(...all.slice(-5).reverse().map(row));
    if (tried && !looked) await showOperation();
  } catch {
    // The shop is gone for a moment: there is another look.
  } finally {
    looking = false;
  }
}

async function watchLedger() {
  for (;;) {
    await sleep(hands.busy() ? 300 : 1000);
    if (!document.hidden) await look();
  }
}

function showVerdict({ times, amount }) {
  const verdict = $("verdict");
  const [big, small] = {
    0: ["No charge", "for this order"],
    1: ["1 charge", `for this order: ${money(amount, "EUR")}`],
  }[times] ?? [`${times} charges`, `for this order: ${money(amount, "EUR")}`];
  const shown = `${big} ${small}`;
  if (verdict.textContent === shown) return; // it would be read out again
  verdict.dataset.times = times > 1 ? "many" : times;
  verdict.replaceChildren(element("b", big), ` ${small}`);
}

const clock = new Intl.DateTimeFormat(document.documentElement.lang, { timeStyle: "medium", hourCycle: "h23" });

function row({ at, kind, amount, currency, ours }) {
  const name = element("td", kind[0].toUpperCase() + kind.slice(1));
  if (ours) name.append(element("span", "this order", "mark"));
  const line = element("tr", "", `${ours ? "ours" : "other"} ${kind}`);
  line.append(element("td", clock.format(new Date(at))), name, element("td", money(amount, currency), "number"));
  return line;
}

// The operation

async function showOperation() {
  const at = $("operation");
  if (!tried) {
    at.textContent = "Nothing was sent yet.";
    return;
  }
  if (mode() === "naive") {
    at.textContent = "It can’t be asked: each attempt had a key of its own.";
    return;
  }
  const told = await status(tried);
  if (!told) {
    at.textContent = "The shop knows nothing of it yet.";
    return;
  }
  looked = told.state !== "running";
  const runs = `${told.attempts} ${told.attempts === 1 ? "run" : "runs"}`;
  const took = told.ended ? `, ${duration(Date.parse(told.ended) - Date.parse(told.created))}` : "";
  at.replaceChildren(element("span", told.state, `state ${told.state}`), runs + took);
}

watch.attempt = ({ operation, number, status, error, again, delay }) => {
  const what = status ?? (error?.name === "TimeoutError" ? "no answer in time" : "no answer: the connection broke");
  const then = again ? (delay ? `, again in ${duration(delay)}` : ", again") : "";
  const meaning = { 201: " Created", 402: " Declined", 409: " Still in progress" }[status] ?? "";
  const first = operation?.startsWith("order") ? "Order" : "Payment";
  say(number === 1 ? first : "Again", `${what}${meaning}${then}`);
};

const duration = (ms) => (ms < 1000 ? `${Math.ceil(ms)} ms` : `${(ms / 1000).toFixed(1)} s`);

function say(who, what) {
  const line = element("li");
  line.append(element("span", who), element("span", what));
  $("attempts").append(line);
}

function element(name, text = "", style = "") {
  const made = document.createElement(name);
  if (text) made.textContent = text;
  if (style) made.className = style;
  return made;
}
