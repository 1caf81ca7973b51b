import assert from "node:assert/strict";
import { test } from "node:test";

import { MemoryStorage } from "../harness/storage.js";
import { payment, shop, url } from "../harness/shop.js";

/** The locks of an origin, for as long as a test runs. */
function installLocks(t, request) {
  const queues = new Map();
  const fair = async (name, { signal, ifAvailable }, run) => {
    const before = queues.get(name);
    if (ifAvailable && before) return run(null);
    let release;
    const mine = new Promise((done) => (release = done));
    const queue = Promise.resolve(before).then(() => mine);
    queues.set(name, queue);
    try {
      const aborted = new Promise((_, fail) => signal?.addEventListener("abort", () => fail(signal.reason)));
      await Promise.race([before, aborted]);
      return await run({ name });
    } finally {
      release();
      queue.then(() => queues.get(name) === queue && queues.delete(name));
    }
  };
  const was = Object.getOwnPropertyDescriptor(globalThis, "navigator");
  Object.defineProperty(globalThis, "navigator", {
    configurable: true,
    value: { locks: { request: request ?? fair } },
  });
  t.after(() => (was ? Object.defineProperty(globalThis, "navigator", was) : delete globalThis.navigator));
}

/** A server that gives each key one answer, and counts them. */
function bank() {
  const answers = new Map();
  const pay = async (_, init) => {
    const key = new Headers(init.headers).get("Idempotency-Key");
    await new Promise((done) => setTimeout(done, 5));
    const headers = answers.has(key) ? { "Idempotent-Replayed": "true" } : {};
    if (!answers.has(key)) answers.set(key, answers.size + 1);
    return new Response(`charge ${answers.get(key)}`, { status: 201, headers });
  };
  return { pay, answers };
}

test("R-65: two tabs that ask at once have one effect and one answer, and leave nothing behind", async (t) => {
  installLocks(t);
  const { pay, answers } = bank();
  const storage = new MemoryStorage();
  for (let round = 1; round <= 20; round++) {
    const tabs = [1, 2, 3].map(() => shop([], { storage, fetch: pay }).client.operation("checkout-42"));
    const got = await Promise.all(tabs.map(async (tab) => (await tab.fetch(url, payment)).text()));
    assert.deepEqual(got, [`charge ${round}`, `charge ${round}`, `charge ${round}`]);
    assert.equal(answers.size, round);
    assert.equal(storage.items.size, 0);
  }
});

test("R-65: without locks two tabs can have two effects", async (t) => {
  installLocks(t);
  const { pay, answers } = bank();
  const storage = new MemoryStorage();
  const tabs = [1, 2].map(() => shop([], { storage, fetch: pay, lock: false }).client.operation("checkout-42"));
  await Promise.all(tabs.map((tab) => tab.fetch(url, payment)));
  assert.equal(answers.size, 2);
});

test("R-65: a click after the answer is another wish", async (t) => {
  installLocks(t);
  const { pay, answers } = bank();
  const storage = new MemoryStorage();
  for (let n = 1; n <= 3; n++) {
    await shop([], { storage, fetch: pay }).client.operation("checkout-42").fetch(url, payment);
    await new Promise((done) => setTimeout(done, 2));
    assert.equal(answers.size, n);
  }
});

test("who waits for another tab may give up, and its time counts", async (t) => {
  installLocks(t);
  let answer;
  const held = () => new Promise((done) => (answer = () => done(new Response("{}", { status: 201 }))));
  const storage = new MemoryStorage();
  const first = shop([held], { storage }).client.operation("checkout-42").fetch(url, payment);
  const other = shop([], { storage });
  while (!answer) await new Promise(setImmediate);
  const controller = new AbortController();
  const second = other.client.operation("checkout-42").fetch(url, { ...payment, signal: controller.signal });
  controller.abort();
  await assert.rejects(second, controller.signal.reason);
  const third = other.client.operation("checkout-42").fetch(url, { ...payment, timeout: 5 });
  await assert.rejects(third, { name: "IdempotencyError", reason: "deadline", attempts: 0 });
  assert.equal(other.server.requests.length, 0);
  answer();
  assert.equal((await first).status, 201);
});

test("what ends a call when its answer is there changes nothing any more", async (t) => {
  const controller = new AbortController();
  installLocks(t, async (name, { ifAvailable }, run) => {
    if (ifAvailable) controller.abort(); // while the lock is looked after, in the end
    return run({ name });
  });
  const storage = new MemoryStorage();
  const { client } = shop([{ status: 201 }], { storage });
  const answer = await client.operation("checkout-42").fetch(url, { ...payment, signal: controller.signal });
  assert.equal(controller.signal.aborted, true);
  assert.equal(answer.status, 201); // an error would ask for another call, and the key is gone
  assert.equal(storage.items.size, 0);
});

test("locks that are forbidden cost no payment", async (t) => {
  installLocks(t, () => Promise.reject(new DOMException("sandboxed", "SecurityError")));
  const storage = new MemoryStorage();
  const { client } = shop([{ status: 201 }], { storage });
  assert.equal((await client.operation("checkout-42").fetch(url, payment)).status, 201);
  assert.equal(storage.items.size, 0);
});

test("a second tab with another cart is refused, and nothing of it is sent", async (t) => {
  installLocks(t);
  const storage = new MemoryStorage();
  const { client: first, server } = shop([{ network: true }], { storage, maxAttempts: 1 });
  await assert.rejects(first.operation("checkout-42").fetch(url, payment), { reason: "attempts" });
  const other = shop([], { storage });
  const changed = other.client.operation("checkout-42").fetch(url, { ...payment, body: '{"amount":6}' });
  await assert.rejects(changed, { code: "IDEMPOTENCY_KEY_REUSED", attempts: 0 });
  assert.equal(other.server.requests.length, 0);
  assert.equal(server.requests.length, 1);
});
