import assert from "node:assert/strict";
import { test } from "node:test";

import { MemoryStorage } from "../harness/storage.js";
import { payment, shop, url } from "../harness/shop.js";

const clean = () => {
  assert.equal({}.polluted, undefined);
  assert.equal([].polluted, undefined);
  assert.equal(Object.getOwnPropertyDescriptor(Object.prototype, "code"), undefined);
};

/** An answer of these bytes, as JSON.stringify would not write it. */
const problem = (text) => () =>
  new Response(text, { status: 409, headers: { "Content-Type": "application/problem+json", "Idempotency-Code": "IDEMPOTENCY_OUTCOME_UNKNOWN" } });

test("R-66: an answer changes no prototype", async () => {
  for (const text of [
    '{"__proto__":{"polluted":true},"code":"x","status":409}',
    '{"constructor":{"prototype":{"polluted":true}},"code":"x"}',
    '{"__proto__":{"code":"IDEMPOTENCY_IN_PROGRESS","retryable":true,"polluted":true}}',
    '{"hasOwnProperty":1,"toString":null,"valueOf":{}}',
  ]) {
    const { client, server } = shop([problem(text)]);
    await assert.rejects(client.fetch(url, payment), (error) => {
      assert.equal(error.problem?.code ?? error.code, "IDEMPOTENCY_OUTCOME_UNKNOWN", text);
      assert.equal(error.polluted, undefined);
      return true;
    });
    assert.equal(server.requests.length, 1, text); // what is inherited says nothing of a repeat
    clean();
  }
});

test("R-65: names of operations and what is stored change no prototype", async () => {
  for (const name of ["__proto__", "constructor", "toString", "hasOwnProperty"]) {
    const storage = new MemoryStorage();
    const { client, keys } = shop([{ network: true }, { status: 201, json: {} }], { storage, maxAttempts: 1 });
    await assert.rejects(client.operation(name).fetch(url, payment), { reason: "attempts" });
    await client.operation(name).fetch(url, payment);
    assert.equal(keys()[1], keys()[0]);
    clean();
  }
  const storage = new MemoryStorage();
  storage.items.set("semel:x", '{"__proto__":{"polluted":true,"value":"forged","made":1},"constructor":{"prototype":{"polluted":true}}}');
  const { client, keys } = shop([{ status: 201, json: {} }], { storage });
  await client.operation("x").fetch(url, payment);
  assert.notEqual(keys()[0], '"forged"');
  clean();
});
