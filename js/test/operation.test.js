import assert from "node:assert/strict";
import { test } from "node:test";

import { MemoryStorage, RefusingStorage } from "../harness/storage.js";
import { payment, shop, url } from "../harness/shop.js";

const ok = { status: 201, json: { id: 1 } };
const exhausted = { maxAttempts: 1 };

test("R-65: a reload sends the same key, until there is an answer", async () => {
  const storage = new MemoryStorage();
  const before = shop([{ network: true }], { storage, ...exhausted });
  await assert.rejects(before.client.operation("checkout-42").fetch(url, payment), { reason: "attempts" });
  assert.equal(storage.items.size, 1);

  const after = shop([ok, ok], { storage });
  const operation = after.client.operation("checkout-42");
  assert.equal(`"${operation.key.value}"`, before.keys()[0]);
  assert.equal((await operation.fetch(url, payment)).status, 201);
  assert.equal(after.keys()[0], before.keys()[0]);
  assert.equal(storage.items.size, 0);
  assert.equal(operation.key, undefined);

  await operation.fetch(url, payment); // another wish
  assert.notEqual(after.keys()[1], after.keys()[0]);
});

test("R-65: the key is stored before anything is sent", async () => {
  const storage = new MemoryStorage();
  const stored = [];
  const look = () => {
    stored.push(...storage.items.entries());
    return new Response("{}", { status: 201 });
  };
  const { client, keys } = shop([look], { storage });
  await client.operation("checkout-42").fetch(url, payment);
  assert.equal(stored.length, 1);
  assert.equal(stored[0][0], "semel:checkout-42");
  assert.equal(`"${JSON.parse(stored[0][1]).value}"`, keys()[0]);
});

test("operations of different names have different keys", async () => {
  const { client, keys } = shop([ok, ok]);
  await client.operation("a").fetch(url, payment);
  await client.operation("b").fetch(url, payment);
  assert.notEqual(keys()[0], keys()[1]);
});

test("R-65: with a derived key, a call after the answer and one in another tab are the same wish", async () => {
  const [first, second] = [shop([ok, ok], { storage: new MemoryStorage() }), shop([ok])];
  const operation = first.client.operation("checkout-42", { key: "order-42" });
  await operation.fetch(url, payment);
  await operation.fetch(url, payment);
  await second.client.operation("checkout-42", { key: { value: "order-42", made: Date.now() - 1000 } }).fetch(url, payment);
  assert.deepEqual([...first.keys(), ...second.keys()], Array(3).fill('"order-42"'));
});

test("R-65: a derived key is kept like any other, with its age, until there is an answer", async () => {
  const storage = new MemoryStorage();
  const before = shop([{ network: true }], { storage, ...exhausted });
  await assert.rejects(before.client.operation("checkout-42", { key: "order-42" }).fetch(url, payment), { reason: "attempts" });
  const after = shop([ok], { storage });
  const operation = after.client.operation("checkout-42", { key: { value: "order-42", made: 0 } });
  assert.ok(operation.key.made > 0);
  await operation.fetch(url, payment);
  assert.equal(operation.key, undefined);
  await assert.rejects(operation.fetch(url, payment), { reason: "retention", attempts: 0 });
});

test("another derived key does not replace one whose outcome is not known", async () => {
  const storage = new MemoryStorage();
  const { client, server } = shop([{ network: true }, ok], { storage, ...exhausted });
  await assert.rejects(client.operation("checkout-42", { key: "order-42" }).fetch(url, payment));
  const other = client.operation("checkout-42", { key: "order-43" });
  await assert.rejects(other.fetch(url, payment), { code: "IDEMPOTENCY_KEY_INVALID", attempts: 0 });
  assert.equal(server.requests.length, 1);
  other.forget();
  await other.fetch(url, payment);
  assert.equal(server.requests[1].key, '"order-43"');
});

test("a derived key that can't be sent is refused at once", () => {
  const { client } = shop([]);
  for (const key of ["", "ä", 42, { value: "order-42", made: "today" }]) {
    assert.throws(() => client.operation("checkout-42", { key }), { code: "IDEMPOTENCY_KEY_INVALID" });
  }
});

test("R-65: a second call while one is under way sends nothing, and gets the same answer", async () => {
  let answer;
  const slow = () => new Promise((done) => (answer = () => done(new Response('{"id":1}', { status: 201 }))));
  const { client, server } = shop([slow]);
  const both = [client.operation("checkout-42").fetch(url, payment), client.operation("checkout-42").fetch(url, payment)];
  while (!answer) await new Promise(setImmediate);
  answer();
  const [first, second] = await Promise.all(both);
  assert.deepEqual([await first.json(), await second.json()], [{ id: 1 }, { id: 1 }]);
  assert.equal(second.idempotent.attempts, 1);
  assert.equal(server.requests.length, 1);
});

const slow = ({ signal }) => new Promise((_, fail) => signal.addEventListener("abort", () => fail(signal.reason)));

for (const why of [undefined, new DOMException("the caller's own time", "TimeoutError")]) {
  test(`who gives up a call takes it from nobody who has joined it: ${why}`, async () => {
    const { client, keys } = shop([slow, ok]);
    const operation = client.operation("checkout-42");
    const controller = new AbortController();
    const first = operation.fetch(url, { ...payment, signal: controller.signal });
    const others = [operation.fetch(url, payment), operation.fetch(url, payment)];
    while (keys().length === 0) await new Promise(setImmediate);
    controller.abort(why);
    others.push(operation.fetch(url, payment)); // as a component does that is mounted again at once
    await assert.rejects(first, controller.signal.reason);
    for (const other of await Promise.all(others)) assert.equal(other.status, 201);
    assert.equal(keys().length, 2);
    assert.equal(keys()[1], keys()[0]);
  });
}

test("who has joined a call may give it up, and takes it from nobody else", async () => {
  let answer;
  const held = () => new Promise((done) => (answer = () => done(new Response("{}", { status: 201 }))));
  const { client, keys } = shop([held]);
  const operation = client.operation("checkout-42");
  const first = operation.fetch(url, payment);
  while (!answer) await new Promise(setImmediate);
  const controller = new AbortController();
  const second = operation.fetch(url, { ...payment, signal: controller.signal });
  const third = operation.fetch(url, { ...payment, timeout: 1 });
  await assert.rejects(third, { name: "IdempotencyError", reason: "deadline", attempts: 1 });
  controller.abort();
  await assert.rejects(second, controller.signal.reason);
  await assert.rejects(operation.fetch(url, { ...payment, timeout: "soon" }), TypeError);
  answer();
  assert.equal((await first).status, 201);
  assert.equal(keys().length, 1);
});

test("a signal that all have in common ends all", async () => {
  const { client, keys } = shop([slow]);
  const controller = new AbortController();
  const init = { ...payment, signal: controller.signal };
  const both = [client.operation("checkout-42").fetch(url, init), client.operation("checkout-42").fetch(url, init)];
  while (keys().length === 0) await new Promise(setImmediate);
  controller.abort();
  for (const call of both) await assert.rejects(call, controller.signal.reason);
  assert.equal(keys().length, 1);
});

test("an abort while an answer is judged does not hide that", async () => {
  const controller = new AbortController();
  const classify = async () => controller.abort();
  const { client } = shop([ok], { classify });
  const operation = client.operation("checkout-42");
  assert.equal((await operation.fetch(url, { ...payment, signal: controller.signal })).status, 201);
  assert.equal(operation.key, undefined);
});

test("a call that was given up before it was sent leaves no key", async () => {
  const storage = new MemoryStorage();
  const { client, server } = shop([], { storage });
  const controller = new AbortController();
  const call = client.operation("checkout-42").fetch(url, { ...payment, signal: controller.signal });
  controller.abort();
  await assert.rejects(call, controller.signal.reason);
  await new Promise(setImmediate);
  await new Promise(setImmediate);
  assert.equal(storage.items.size, 0);
  assert.equal(server.requests.length, 0);
});

test("a call that failed is not under way any more", async () => {
  const { client, keys } = shop([{ network: true }, ok], exhausted);
  const operation = client.operation("checkout-42");
  await assert.rejects(operation.fetch(url, payment));
  assert.equal((await operation.fetch(url, payment)).status, 201);
  assert.equal(keys()[0], keys()[1]);
});

for (const [what, status, code] of [
  ["another request's key", 422, "IDEMPOTENCY_KEY_REUSED"],
  ["an unknown outcome", 409, "IDEMPOTENCY_OUTCOME_UNKNOWN"],
  ["an answer that is gone", 409, "IDEMPOTENCY_REPLAY_UNAVAILABLE"],
  ["an expired key", 422, "IDEMPOTENCY_KEY_EXPIRED"],
]) {
  test(`the key stays after ${what}, until it is told to go`, async () => {
    const { client } = shop([{ status, problem: { code, retryable: false } }]);
    const operation = client.operation("checkout-42");
    await assert.rejects(operation.fetch(url, payment), { code });
    assert.notEqual(operation.key, undefined);
    operation.forget();
    assert.equal(operation.key, undefined);
  });
}

test("a refusal by the application is a definite answer", async () => {
  const { client } = shop([{ status: 402, problem: { code: "CARD_DECLINED" } }]);
  const operation = client.operation("checkout-42");
  assert.equal((await operation.fetch(url, payment)).status, 402);
  assert.equal(operation.key, undefined);
});

for (const [what, script, stays] of [
  ["at once", [{ status: 401 }], false],
  ["after a lost answer", [{ network: true }, { status: 401 }], true],
  ["after a lost answer, as a replay", [{ network: true }, { status: 401, headers: { "Idempotent-Replayed": "true" } }], false],
]) {
  test(`a login asked for ${what} ${stays ? "leaves the key" : "is the answer"}`, async () => {
    const { client } = shop(script, { random: () => 0 });
    const operation = client.operation("checkout-42");
    const call = operation.fetch(url, payment);
    if (stays) await assert.rejects(call, (e) => e.code === "IDEMPOTENCY_OUTCOME_PENDING" && e.response.status === 401);
    else assert.equal((await call).status, 401);
    assert.equal(operation.key !== undefined, stays);
  });
}

test("R-33: a 202 that was preferred to waiting leaves the key, until there is an answer", async () => {
  const accepted = { status: 202, headers: { Location: "/operations/1", "Preference-Applied": "respond-async" } };
  const { client, keys } = shop([accepted, ok, { status: 202 }], { random: () => 0 });
  const operation = client.operation("checkout-42");
  assert.equal((await operation.fetch(url, payment)).status, 202);
  assert.equal((await operation.fetch(url, payment)).status, 201);
  assert.equal(keys()[1], keys()[0]);
  assert.equal(operation.key, undefined);
  assert.equal((await operation.fetch(url, payment)).status, 202); // of an application that always answers so
  assert.equal(operation.key, undefined);
});

for (const status of [500, 501, 503, 505, 507, 520, 522, 524, 599]) {
  test(`a ${status} leaves the key, unless it is kept or replayed`, async () => {
    const lost = { network: true };
    const kept = { "Idempotency-Retryable": "false" };
    for (const headers of [kept, { ...kept, "Idempotent-Replayed": "true" }]) {
      const { client, keys } = shop([lost, { status }, { status, headers }], { maxAttempts: 1 });
      const operation = client.operation("checkout-42");
      await assert.rejects(operation.fetch(url, payment), { reason: "attempts" });
      await assert.rejects(operation.fetch(url, payment), (error) => error.response.status === status && error.key !== undefined);
      assert.equal(`"${operation.key.value}"`, keys()[0]);
      assert.equal((await operation.fetch(url, payment)).status, status);
      assert.deepEqual(keys(), [keys()[0], keys()[0], keys()[0]]);
      assert.equal(operation.key, undefined);
    }
  });
}

for (const [what, told, stays] of [
  ["failed, and is not kept", { state: "failed", retryable: true }, true],
  ["failed", { state: "failed" }, false],
  ["failed for good", { state: "failed", retryable: false }, false],
  ["succeeded", { state: "succeeded", retryable: true }, false],
]) {
  test(`R-33: a 202 whose operation ${what} ${stays ? "leaves the key" : "is answered"}`, async () => {
    const accepted = { status: 202, headers: { Location: "/operations/1", "Preference-Applied": "respond-async" } };
    const { client, keys } = shop([accepted, { status: 200, json: told }, ok], { pollEvery: 1 });
    const operation = client.operation("checkout-42");
    const answer = await operation.fetch(url, payment);
    assert.equal(answer.idempotent.state, told.state);
    assert.equal(answer.idempotent.nothingKept, undefined);
    assert.equal(operation.key !== undefined, stays);
    assert.equal((await operation.fetch(url, payment)).status, 201);
    assert.equal(keys()[2] === keys()[0], stays);
    assert.equal(operation.key, undefined);
  });
}

test("whoever may not come in after a lost answer keeps the key, until there is an answer", async () => {
  const { client, keys } = shop([{ network: true }, { status: 403 }, ok], { random: () => 0 });
  const operation = client.operation("checkout-42");
  await assert.rejects(operation.fetch(url, payment), { code: "IDEMPOTENCY_OUTCOME_PENDING" });
  assert.equal((await operation.fetch(url, payment)).status, 201);
  assert.equal(keys()[2], keys()[0]);
  assert.equal(operation.key, undefined);
});

test("a key that another tab has made meanwhile is left alone", async () => {
  const storage = new MemoryStorage();
  const replace = () => {
    storage.setItem("semel:checkout-42", JSON.stringify({ value: "other", made: Date.now() }));
    return new Response("{}", { status: 201 });
  };
  const { client } = shop([replace], { storage });
  const operation = client.operation("checkout-42");
  await operation.fetch(url, payment);
  assert.equal(operation.key.value, "other");
});

for (const refused of [["setItem"], ["getItem", "setItem", "removeItem"]]) {
  test(`storage that refuses ${refused} costs no payment: the key is kept in memory, and that is told`, async () => {
    const storage = new RefusingStorage(...refused);
    const { client, keys, warnings } = shop([{ network: true }, ok], { storage, ...exhausted });
    await assert.rejects(client.operation("checkout-42").fetch(url, payment), { reason: "attempts" });
    assert.ok(warnings.length > 0);
    assert.equal(warnings.at(-1).operation, "checkout-42");
    assert.equal(warnings.at(-1).error.name, "QuotaExceededError");
    assert.equal((await client.operation("checkout-42").fetch(url, payment)).status, 201);
    assert.equal(keys()[0], keys()[1]);
    assert.equal(client.operation("checkout-42").key, undefined);
  });
}

test("a key that can't be removed is forgotten all the same", async () => {
  const storage = new RefusingStorage("removeItem");
  const { client, keys, warnings } = shop([ok, ok], { storage });
  await client.operation("checkout-42").fetch(url, payment);
  assert.equal(warnings.length, 1);
  await client.operation("checkout-42").fetch(url, payment);
  assert.notEqual(keys()[0], keys()[1]);
});

test("storage that may not even be looked at costs no payment", async (t) => {
  const was = Object.getOwnPropertyDescriptor(globalThis, "sessionStorage");
  const get = () => {
    throw new DOMException("forbidden", "SecurityError");
  };
  Object.defineProperty(globalThis, "sessionStorage", { configurable: true, get });
  t.after(() => (was ? Object.defineProperty(globalThis, "sessionStorage", was) : delete globalThis.sessionStorage));
  const { client, warnings } = shop([ok], { storage: undefined });
  assert.equal((await client.operation("checkout-42").fetch(url, payment)).status, 201);
  assert.ok(warnings.some((w) => w.error.name === "SecurityError"));
});

test("storage that answers with promises is refused before anything is sent", async () => {
  for (const late of [async () => null, () => Promise.reject(new Error("late"))]) {
    const storage = Object.assign(new MemoryStorage(), { getItem: late });
    const { client, server } = shop([ok], { storage });
    const operation = client.operation("checkout-42");
    await assert.rejects(operation.fetch(url, payment), { name: "TypeError", message: /promise/ });
    assert.throws(() => operation.key, TypeError);
    await new Promise(setImmediate);
    assert.equal(server.requests.length, 0);
  }
});

test("a hook that fails later costs no payment either", async (t) => {
  t.mock.method(console, "error", () => {});
  const { client } = shop([ok], { onAttempt: async () => Promise.reject(new Error("the hook's own")) });
  assert.equal((await client.operation("checkout-42").fetch(url, payment)).status, 201);
  await new Promise(setImmediate);
  assert.equal(console.error.mock.callCount(), 1);
});

test("a hook that throws costs no payment", async (t) => {
  t.mock.method(console, "error", () => {});
  const fail = () => {
    throw new Error("the hook's own");
  };
  const { client } = shop([ok], { storage: new RefusingStorage("setItem"), onWarning: fail, onAttempt: fail });
  assert.equal((await client.operation("checkout-42").fetch(url, payment)).status, 201);
  assert.ok(console.error.mock.callCount() >= 2);
});

for (const text of ["", "nonsense", "null", "{}", '{"value":7,"made":1}', '{"value":"x"}', '{"value":"é","made":1}']) {
  test(`what is stored but is not a key is replaced: ${JSON.stringify(text)}`, async () => {
    const storage = new MemoryStorage();
    storage.setItem("semel:checkout-42", text);
    const { client, warnings, keys } = shop([ok], { storage });
    await client.operation("checkout-42").fetch(url, payment);
    assert.match(keys()[0], /^"[0-9a-f-]{36}"$/);
    assert.equal(warnings.length, 1);
  });
}

test("R-68: a key from storage that is too old is not sent, and not replaced by a new one", async () => {
  const storage = new MemoryStorage();
  storage.setItem("semel:checkout-42", JSON.stringify({ value: "old", made: Date.now() - 24 * 3600 * 1000 }));
  const { client, server } = shop([], { storage });
  const operation = client.operation("checkout-42");
  await assert.rejects(operation.fetch(url, payment), { reason: "retention", attempts: 0 });
  assert.equal(server.requests.length, 0);
  assert.equal(operation.key.value, "old");
});

test("an operation has a name, an unsafe method, and no other key", async () => {
  const { client, server } = shop([]);
  for (const name of ["", undefined, 42]) assert.throws(() => client.operation(name), TypeError);
  const operation = client.operation("checkout-42");
  await assert.rejects(operation.fetch(url), TypeError);
  await assert.rejects(operation.fetch(url, { method: "get" }), TypeError);
  await assert.rejects(operation.fetch(url, { ...payment, key: "mine" }), TypeError);
  const other = { ...payment, headers: { "Idempotency-Key": "mine" } };
  await assert.rejects(operation.fetch(url, other), { code: "IDEMPOTENCY_KEY_INVALID" });
  assert.equal(server.requests.length, 0);
  assert.equal(operation.key, undefined);
});

for (const [what, address, init] of [
  ["a stream", url, { method: "POST", body: new Blob(["x"]).stream(), duplex: "half" }],
  ["a wrong address", "nowhere", payment],
  ["a mode without headers", url, { ...payment, mode: "no-cors" }],
  ["a wrong signal", url, { ...payment, signal: 5 }],
  ["a wrong time", url, { ...payment, timeout: -1 }],
]) {
  test(`what can't be sent for ${what} leaves no key`, async () => {
    const storage = new MemoryStorage();
    const { client, server } = shop([], { storage });
    await assert.rejects(client.operation("checkout-42").fetch(address, init));
    assert.equal(server.requests.length, 0);
    assert.equal(storage.items.size, 0);
  });
}

test("a stream that does not end is refused at once", async () => {
  const { client } = shop([]);
  const body = new ReadableStream({ pull: () => new Promise(() => {}) });
  const call = client.operation("upload").fetch(url, { method: "POST", body, duplex: "half" });
  await assert.rejects(call, { code: "BODY_NOT_REPEATABLE" });
});

test("what can't be sent does not cost the key of what was", async () => {
  const { client, keys } = shop([{ network: true }, ok], exhausted);
  const operation = client.operation("checkout-42");
  await assert.rejects(operation.fetch(url, payment), { reason: "attempts" });
  await assert.rejects(operation.fetch("nowhere", payment), TypeError);
  await operation.fetch(url, payment);
  assert.equal(keys()[1], keys()[0]);
});

test("R-65: another request under the name of one that has no answer is refused here, and nothing of it is sent", async () => {
  const storage = new MemoryStorage();
  const before = shop([{ network: true }], { storage, ...exhausted });
  await assert.rejects(before.client.operation("checkout-42").fetch(url, payment), { reason: "attempts" });
  for (const [address, init] of [
    [url, { ...payment, body: '{"amount":6}' }],
    [url, { ...payment, method: "PUT" }],
    [`${url}?to=mallory`, payment],
  ]) {
    const { client, server } = shop([], { storage });
    const operation = client.operation("checkout-42");
    await assert.rejects(operation.fetch(address, init), { name: "IdempotencyError", code: "IDEMPOTENCY_KEY_REUSED", attempts: 0 });
    assert.equal(server.requests.length, 0);
    assert.equal(`"${operation.key.value}"`, before.keys()[0]);
  }
  const { client, keys } = shop([ok], { storage });
  await client.operation("checkout-42").fetch(url, payment);
  assert.equal(keys()[0], before.keys()[0]);
});

test("R-65: a form is the same request, whatever its boundary", async () => {
  const form = () => {
    const made = new FormData();
    made.set("file", new Blob(["x"]), "a.txt");
    return { method: "POST", body: made };
  };
  const storage = new MemoryStorage();
  await assert.rejects(shop([{ network: true }], { storage, ...exhausted }).client.operation("upload").fetch(url, form()));
  assert.equal((await shop([ok], { storage }).client.operation("upload").fetch(url, form())).status, 201);
});

test("R-65: who joins a call with another request gets an error, not that one's answer", async () => {
  let answer;
  const held = () => new Promise((done) => (answer = () => done(new Response("{}", { status: 201 }))));
  const { client, server } = shop([held]);
  const first = client.operation("checkout-42").fetch(url, payment);
  await assert.rejects(client.operation("checkout-42").fetch(url, { ...payment, body: '{"amount":6}' }), { code: "IDEMPOTENCY_KEY_REUSED" });
  while (!answer) await new Promise(setImmediate);
  answer();
  assert.equal((await first).status, 201);
  assert.equal(server.requests.length, 1);
});

test("R-10: without a window operations are somebody's", async (t) => {
  const { window } = globalThis;
  delete globalThis.window;
  t.after(() => (globalThis.window = window));
  const { client, keys } = shop([ok, ok]);
  assert.throws(() => client.operation("checkout"), /scope/);
  const both = ["ada", "grace"].map((scope) => client.operation("checkout", { scope }).fetch(url, payment));
  await Promise.all(both);
  assert.equal(keys().length, 2);
  assert.notEqual(keys()[0], keys()[1]);
  assert.equal(shop([], { scope: "ada" }).client.operation("checkout").name, "checkout");
});

test("R-10: scopes and names can't be mistaken for others", async () => {
  const storage = new MemoryStorage();
  const { client } = shop([{ network: true }, { network: true }], { storage, ...exhausted });
  await assert.rejects(client.operation("b/c", { scope: "a" }).fetch(url, payment));
  await assert.rejects(client.operation("c", { scope: "a/b" }).fetch(url, payment));
  assert.equal(storage.items.size, 2);
});

test("R-65: a key can be derived from what the operation is for", async () => {
  const { client, keys } = shop([{ network: true }, ok, ok], exhausted);
  const operation = client.operation("checkout-42", { key: "order-42" });
  await assert.rejects(operation.fetch(url, payment), { reason: "attempts" });
  await operation.fetch(url, payment);
  await operation.fetch(url, payment);
  assert.deepEqual(keys(), ['"order-42"', '"order-42"', '"order-42"']);
  assert.throws(() => client.operation("checkout-42", { key: "é" }), { code: "IDEMPOTENCY_KEY_INVALID" });
});

test("R-70: what became of an operation can be asked", async () => {
  const gone = { status: 404, problem: { code: "IDEMPOTENCY_OPERATION_NOT_FOUND" } };
  const running = { status: 200, json: { state: "running" } };
  const options = { statusURL: "https://api.example/operations", ...exhausted };
  const { client, server } = shop([{ network: true }, running, gone], options);
  const operation = client.operation("checkout-42");
  assert.equal(await operation.status(), undefined); // there is no key to ask by
  await assert.rejects(operation.fetch(url, payment), { reason: "attempts" });
  const told = await operation.status({ method: "POST", headers: { Authorization: "Bearer 7" } });
  assert.equal(told.state, "running");
  assert.equal(await operation.status(), undefined);
  const [request, question] = server.requests;
  assert.deepEqual([question.method, question.url, question.key], ["GET", options.statusURL, request.key]);
  assert.equal(question.headers.get("Authorization"), "Bearer 7");
  assert.equal(operation.key === undefined, false);
  await assert.rejects(shop([]).client.operation("x", { key: "k" }).status(), /statusURL/);
});
