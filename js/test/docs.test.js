import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { test } from "node:test";

import { Server } from "../harness/server.js";
import { MemoryStorage } from "../harness/storage.js";

// The snippets of the documentation, run in what looks to them like a page.

const index = new URL("../src/index.js", import.meta.url).href;

async function snippets(path) {
  const page = await readFile(new URL(path, import.meta.url), "utf8");
  return [...page.matchAll(/^```js\n(.*?)^```/gms)].map(([, code]) => code);
}

/** Runs a snippet, and returns what the page around it saw. */
async function run(t, code, script, storage = new MemoryStorage()) {
  const server = new Server(script);
  const shown = [];
  const page = {
    fetch: server.fetch,
    location: new URL("https://shop.example/checkout"),
    sessionStorage: storage,
    localStorage: storage,
    window: globalThis,
    order: { id: "42", amount: 4900, key: "order-42" },
    secret: "sk_test",
    show: (text) => shown.push(text),
    button: { addEventListener: (event, f) => (page.click = f) },
  };
  for (const [name, value] of Object.entries(page)) {
    const was = Object.getOwnPropertyDescriptor(globalThis, name);
    Object.defineProperty(globalThis, name, { configurable: true, writable: true, value });
    t.after(() => (was ? Object.defineProperty(globalThis, name, was) : delete globalThis[name]));
  }
  const unique = `\n// ${Math.random()}`; // a module is run once
  await import(`data:text/javascript,${encodeURIComponent(code.replace('"@semelhq/client"', JSON.stringify(index)) + unique)}`);
  return { server, shown, storage, click: () => page.click() };
}

test("the snippets that only send, send", async (t) => {
  const [, , first] = await snippets("../../docs/client.md");
  const [readme] = await snippets("../README.md");
  for (const code of [first, readme]) {
    const { server } = await run(t, code, [{ status: 201 }]);
    assert.equal(server.requests.length, 1);
    assert.equal(server.requests[0].url, "https://shop.example/payments");
    assert.equal(server.requests[0].body, '{"order":"42","amount":4900}');
    assert.match(server.requests[0].key, /^"[0-9a-f-]{36}"$/);
  }
});

test("the snippet for a vendor sends the key as the vendor wants it", async (t) => {
  const [code] = await snippets("../../docs/client.md");
  const { server } = await run(t, code, [{ status: 200 }]);
  assert.equal(server.requests[0].key, "order-42");
  assert.equal(server.requests[0].body, "amount=4900&currency=eur&source=tok_visa");
});

for (const [step, text] of [
  [{ status: 201 }, "paid"],
  [{ status: 402 }, "declined"],
  [{ status: 520 }, "not known yet: try again"],
]) {
  test(`the short checkout shows after ${step.status}: ${text}`, async (t) => {
    const [, code] = await snippets("../../docs/client.md");
    const { shown, click } = await run(t, code, [step]);
    await click();
    assert.deepEqual(shown, [text]);
  });
}

for (const [step, text] of [
  [{ status: 201 }, "paid"],
  [{ status: 402 }, "declined"],
  [{ status: 422, problem: { code: "IDEMPOTENCY_KEY_REUSED" } }, "changed meanwhile"],
  [{ status: 409, problem: { code: "IDEMPOTENCY_OUTCOME_UNKNOWN" } }, "being looked up"],
  [{ status: 422, problem: { code: "IDEMPOTENCY_KEY_EXPIRED" } }, "being looked up"],
  [{ status: 503, headers: { "Retry-After": "3600" } }, "not known yet: try again"],
  [{ status: 520 }, "not known yet: try again"],
]) {
  test(`the checkout shows after ${step.status} ${step.problem?.code ?? ""}: ${text}`, async (t) => {
    const [, , , code] = await snippets("../../docs/client.md");
    const { shown, click } = await run(t, code, [step]);
    await click();
    assert.deepEqual(shown, [text]);
  });
}

test("the checkout goes on after a reload", async (t) => {
  const [, , , code] = await snippets("../../docs/client.md");
  const before = await run(t, code, [{ status: 503, headers: { "Retry-After": "3600" } }]);
  await before.click();
  const after = await run(t, code, [{ status: 201 }], before.storage);
  while (after.shown.length === 0) await new Promise(setImmediate);
  assert.deepEqual(after.shown, ["paid"]);
  assert.equal(after.server.requests[0].key, before.server.requests[0].key);
  assert.equal(after.storage.items.size, 0);
});
