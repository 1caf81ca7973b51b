// What happens to payments in real life, at the push of a button. A scene gets hands: pay clicks on "Pay", and fresh begins
// another order.

import { plug, pull, sent } from "./network.js";

const payments = "/payments/process";
const sleep = (ms) => new Promise((done) => setTimeout(done, ms));

/** Replaces the faults of the card processor. */
export async function faults(f = {}) {
  await fetch("/dev/faults", { method: "PUT", headers: { "Content-Type": "application/json" }, body: JSON.stringify(f) });
}

export const scenes = {
  double: ({ pay }) => Promise.all([pay(), pay()]),

  async answer({ pay }) {
    await fetch("/dev/lose", { method: "POST" });
    await pay();
  },

  async processor({ pay }) {
    await faults({ lose_answer: { next: 1 } });
    await pay();
  },

  async offline({ pay }) {
    await faults({ delay_ms: 1200 });
    const on = sent(payments);
    const first = pay();
    await on;
    await sleep(500);
    pull();
    await sleep(2500);
    plug();
    if (!(await first)) await pay(); // "it did not work": so the visitor clicks again
  },

  async slow({ pay }) {
    await faults({ delay_ms: 4000 });
    if (!(await pay({ hurry: true }))) await pay();
  },

  async reload({ pay }) {
    await faults({ delay_ms: 2500 });
    sessionStorage.setItem(reloaded, "1");
    const on = sent(payments);
    pay();
    await on;
    await sleep(700);
    location.reload();
    await new Promise(() => {}); // the page ends
  },

  async tabs({ pay }) {
    await faults({ delay_ms: 1000 });
    const channel = new BroadcastChannel(tabs);
    const ready = new Promise((done) => (channel.onmessage = done));
    if (!open("/?second-tab")) throw new Error("The browser keeps the page from opening a second tab: allow it, and try again.");
    await ready;
    const other = new Promise((done) => (channel.onmessage = done));
    channel.postMessage("pay");
    await Promise.all([pay(), other]);
    channel.close();
  },
};

const reloaded = "shop:reloaded";
const tabs = "shop:tabs";

/** Goes on with a scene in which this page has a part: the one after the reload, or the second tab. */
export async function resume({ pay, resumed }) {
  if (sessionStorage.getItem(reloaded)) {
    sessionStorage.removeItem(reloaded);
    if (!resumed) await pay(); // the page knows of no payment: so the visitor clicks again
    await faults();
  }
  if (location.search === "?second-tab") {
    const channel = new BroadcastChannel(tabs);
    channel.onmessage = async () => {
      await pay();
      channel.postMessage("done");
      await sleep(1500);
      close();
    };
    channel.postMessage("ready");
  }
}
