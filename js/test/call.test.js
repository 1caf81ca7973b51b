import assert from "node:assert/strict";
import { afterEach, beforeEach, test } from "node:test";

import { Clock } from "../harness/clock.js";
import { payment, shop, url } from "../harness/shop.js";
import { attempts, budget, createClient, fullJitter, operations, polling, untilOnline } from "../src/index.js";

const ok = { status: 201, json: { id: 1 } };
const never = (init) => new Promise((_, fail) => init.signal.addEventListener("abort", () => fail(init.signal.reason)));

let clock;
beforeEach(() => (clock = new Clock().install()));
afterEach(() => clock.uninstall());

/** Lets a browser be without a network. */
function offline(t) {
  const was = Object.getOwnPropertyDescriptor(globalThis, "navigator");
  const network = { onLine: false };
  Object.defineProperty(globalThis, "navigator", { configurable: true, value: network });
  t.after(() => {
    if (was) Object.defineProperty(globalThis, "navigator", was);
    else delete globalThis.navigator;
  });
  return network;
}

test("without a network nothing is sent, and no attempt is lost", async (t) => {
  const network = offline(t);
  const { client, server } = shop([ok]);
  const start = clock.now;
  const answer = client.fetch(url, payment);
  await clock.settle();
  for (let i = 0; i < 5; i++) await clock.step();
  assert.equal(server.requests.length, 0);
  network.onLine = true;
  assert.equal((await clock.until(answer)).value.idempotent.attempts, 1);
  assert.ok(clock.now - start <= 6000, "a network that is back is seen within a second");
});

test("a network that goes away between attempts is waited for", async (t) => {
  const network = offline(t);
  network.onLine = true;
  const cut = () => {
    network.onLine = false;
    throw new TypeError("the network is gone");
  };
  const { client, keys } = shop([cut, ok]);
  const answer = client.fetch(url, payment);
  await clock.settle();
  await clock.step(); // the delay
  assert.equal(keys().length, 1);
  network.onLine = true;
  assert.equal((await clock.until(answer)).value.idempotent.attempts, 2);
  assert.equal(keys()[0], keys()[1]);
});

test("waiting for the network ends with the call's time, or by its signal", async (t) => {
  offline(t);
  const { client, server } = shop([]);
  const { error } = await clock.until(client.fetch(url, { ...payment, timeout: 5000 }));
  assert.equal(error.reason, "deadline");
  assert.equal(error.attempts, 0);

  const controller = new AbortController();
  const answer = client.fetch(url, { ...payment, signal: controller.signal });
  answer.catch(() => {});
  await clock.settle();
  controller.abort();
  await assert.rejects(answer, controller.signal.reason);
  assert.equal(server.requests.length, 0);
});

test("a client that need not wait for the network does not", async (t) => {
  offline(t);
  const { client } = shop([ok], { waitOnline: false });
  assert.equal((await client.fetch(url, payment)).status, 201);
});

test("operations wait for a network, unless they need not, and a client only if it is told to", async (t) => {
  offline(t);
  for (const [waitOnline, options, waits] of [
    [undefined, undefined, false],
    [untilOnline, undefined, true],
    [undefined, {}, true],
    [undefined, { waitOnline: false }, false],
    [untilOnline, { waitOnline: false }, true],
  ]) {
    const { server } = shop([ok]);
    const plain = createClient({ fetch: server.fetch, waitOnline });
    const { fetch } = options ? operations(plain, { storage: null, ...options }).operation("checkout-42") : plain;
    const start = clock.now;
    await clock.until(fetch(url, payment));
    assert.equal(server.requests[0].at - start, waits ? 30_000 : 0);
  }
});

test("a network that comes back unseen is not waited for for ever", async (t) => {
  const network = offline(t);
  const { client } = shop([ok]);
  const answer = client.fetch(url, payment);
  await clock.settle();
  network.onLine = true; // and no event, as in a page that was frozen
  const { value } = await clock.until(answer);
  assert.equal(value.idempotent.attempts, 1);
  assert.equal(clock.waiting, 0);
});

test("a browser that does not see its network is not believed for ever", async (t) => {
  offline(t);
  const start = clock.now;
  const { client, server } = shop([{ status: 503 }, ok]);
  const { value } = await clock.until(client.fetch(url, payment));
  assert.equal(value.status, 201);
  assert.deepEqual(server.requests.map((r) => r.at - start), [30_000, 60_100]);
  assert.equal(clock.waiting, 0);
});

test("to try without a network costs no attempt, and no budget", async (t) => {
  const network = offline(t);
  const gone = { network: true };
  const { client, server, attempts } = shop([gone, gone, gone, ok], { maxAttempts: 1, budget: budget({ share: 0, burst: 0 }) });
  const answer = client.fetch(url, payment);
  answer.catch(() => {});
  await clock.settle();
  while (server.requests.length < 3) await clock.step();
  network.onLine = true;
  const { value } = await clock.until(answer);
  assert.equal(value.status, 201);
  assert.equal(server.requests.length, 4);
  assert.equal(new Set(server.requests.map((r) => r.key)).size, 1);
  assert.deepEqual(attempts.map(({ number, again }) => [number, again]), [[1, true], [1, true], [1, true], [1, false]]);
});

test("what may be sent only once is sent only once without a network, too", async (t) => {
  offline(t);
  const { client, server } = shop([{ network: true }], { keyFor: () => "" });
  const { error } = await clock.until(client.fetch(url, payment));
  assert.equal(error.cause, server.broke);
  assert.equal(error.attempts, 1);
});

test("a PUT or DELETE is sent again, under a key if it has one", async () => {
  for (const method of ["PUT", "DELETE"]) {
    for (const [headers, key] of [[{ "Idempotency-Key": "k" }, "k"], [{}, null]]) {
      const { client, server } = shop([{ network: true }, { status: 503 }, ok]);
      const { value } = await clock.until(client.fetch(url, { method, headers, body: "{}" }));
      assert.equal(value.status, 201);
      assert.deepEqual(server.requests.map((r) => r.key), [key, key, key]);
      assert.deepEqual(server.requests.map((r) => r.body), ["{}", "{}", "{}"]);
    }
  }
});

test("questions without a network cost no attempt", async (t) => {
  const network = offline(t);
  network.onLine = true;
  const accepted = () => {
    network.onLine = false;
    return new Response("", { status: 202, headers: { Location: "/operations/1" } });
  };
  const gone = { network: true };
  const { client } = shop([accepted, gone, gone, { status: 200, json: { state: "succeeded" } }], { pollEvery: 50, maxAttempts: 1 });
  const { value } = await clock.until(client.fetch(url, payment));
  assert.equal(value.idempotent.state, "succeeded");
});

test("R-68: a key that has grown too old while the computer slept is not sent", async () => {
  const { client, server } = shop([{ network: true }]);
  const answer = client.fetch(url, payment);
  answer.catch(() => {});
  await clock.settle();
  clock.now += 24 * 3600 * 1000;
  const { error } = await clock.until(answer);
  assert.equal(error.reason, "retention");
  assert.equal(server.requests.length, 1);
});

test("an abort ends an attempt with the signal's own reason, as it does with fetch", async () => {
  const { client, attempts } = shop([never]);
  const controller = new AbortController();
  const answer = client.fetch(url, { ...payment, signal: controller.signal });
  answer.catch(() => {});
  await clock.settle();
  controller.abort();
  const { error } = await clock.until(answer);
  assert.equal(error, controller.signal.reason);
  assert.equal(attempts[0].again, false);
});

test("an abort ends a delay", async () => {
  const { client, server } = shop([{ status: 503 }]);
  const controller = new AbortController();
  const answer = client.fetch(url, { ...payment, signal: controller.signal });
  answer.catch(() => {});
  await clock.settle();
  controller.abort();
  const { error } = await clock.until(answer);
  assert.equal(error, controller.signal.reason);
  assert.equal(server.requests.length, 1);
  assert.equal(clock.waiting, 0);
});

test("what was aborted before is not sent", async () => {
  const { client, server } = shop([]);
  await assert.rejects(client.fetch(url, { ...payment, signal: AbortSignal.abort() }), { name: "AbortError" });
  assert.equal(server.requests.length, 0);
});

test("an abort after the answer does not break it, and nothing is left to fire", async () => {
  const { client, server } = shop([ok]);
  const controller = new AbortController();
  const answer = await client.fetch(url, { ...payment, signal: controller.signal, timeout: 1000 });
  controller.abort();
  assert.equal(server.requests[0].signal.aborted, false);
  assert.equal(clock.waiting, 0);
  assert.deepEqual(await answer.json(), { id: 1 });
});

test("the call's time ends an attempt", async () => {
  const { client } = shop([never]);
  const { error } = await clock.until(client.fetch(url, { ...payment, timeout: 700 }));
  assert.equal(error.reason, "deadline");
  assert.equal(error.cause.name, "TimeoutError");
});

for (const [what, hang] of [
  ["fetch", () => new Promise(() => {})],
  ["body", () => new Response(new ReadableStream({ pull: () => new Promise(() => {}) }), { status: 201 })],
]) {
  test(`a ${what} that knows nothing of the signal is left alone when the time is over`, async () => {
    const { client, attempts } = shop([hang, hang], { attemptTimeout: 700 });
    const { error } = await clock.until(client.fetch(url, { ...payment, timeout: 1000 }));
    assert.equal(error.reason, "deadline");
    assert.equal(error.attempts, 2);
    assert.equal(attempts[0].took, 700);
    assert.equal(clock.waiting, 0);
  });
}

test("an attempt has its time, and leaves some for another", async () => {
  const { client, attempts } = shop([never, ok], { attemptTimeout: 2000 });
  const { value } = await clock.until(client.fetch(url, payment));
  assert.equal(value.status, 201);
  assert.equal(attempts[0].error.name, "TimeoutError");
  assert.equal(attempts[0].took, 2000);
  assert.equal(clock.waiting, 0);
});

test("a delay is never cut short", async () => {
  const { client, server } = shop([{ status: 503 }, ok], { random: () => 0.333 });
  await clock.until(client.fetch(url, payment));
  assert.equal(server.requests[1].at - server.requests[0].at, 34);
});

test("what a server asked for is forgotten with its next answer", async () => {
  const problem = { code: "IDEMPOTENCY_KEY_REUSED", retryable: false };
  const { client } = shop([{ status: 503, headers: { "Retry-After": "1" } }, { status: 422, problem }]);
  const { error } = await clock.until(client.fetch(url, payment));
  assert.equal(error.code, "IDEMPOTENCY_KEY_REUSED");
  assert.equal(error.retryAt, undefined);
});

test("R-70: an abort ends a question, and is no attempt", async () => {
  const { client, server, attempts } = shop([{ network: true }, never], { statusURL: "/operations" });
  const controller = new AbortController();
  const answer = client.fetch(url, { ...payment, signal: controller.signal });
  answer.catch(() => {});
  await clock.settle();
  await clock.step(); // the delay
  assert.equal(server.requests[1].method, "GET");
  controller.abort();
  const { error } = await clock.until(answer);
  assert.equal(error, controller.signal.reason);
  assert.deepEqual(attempts.map(({ kind, again }) => [kind, again]), [["request", true], ["status", false]]);
  assert.equal(server.requests.length, 2);
});

test("R-68: a key that grew too old while an operation was asked about is not sent again", async () => {
  const late = () => {
    clock.now += 24 * 3600 * 1000;
    return new Response('{"state":"failed","retryable":true}', { headers: { "Content-Type": "application/json" } });
  };
  const { client, server } = shop([{ network: true }, late], { statusURL: "/operations" });
  const { error } = await clock.until(client.fetch(url, payment));
  assert.equal(error.reason, "retention");
  assert.equal(error.code, undefined);
  assert.equal(server.requests.length, 2);
});

test("R-70: each question is told, also the one after which the request is sent again", async () => {
  const failed = { status: 200, json: { state: "failed", retryable: true } };
  const script = [{ network: true }, { status: 200, json: { state: "running" } }, failed, ok];
  const { client, attempts } = shop(script, { statusURL: "/operations" });
  const { value } = await clock.until(client.fetch(url, payment));
  assert.equal(value.idempotent.attempts, 2);
  assert.equal(value.idempotent.state, undefined);
  assert.deepEqual(attempts.map(({ kind, number, again }) => [kind, number, again]), [
    ["request", 1, true],
    ["status", 2, true],
    ["poll", 2, true],
    ["request", 2, false],
  ]);
});

test("R-70: another origin than the request's is asked nothing", async () => {
  const elsewhere = "https://elsewhere.example/operations/1";
  const accepted = { status: 202, headers: { Location: elsewhere } };
  for (const [script, options] of [
    [[accepted], { pollEvery: 1000 }],
    [[{ network: true }, ok], { statusURL: elsewhere }],
  ]) {
    const { client, server } = shop(script, { ...options, crossOrigin: ["https://elsewhere.example"] });
    await clock.until(client.fetch(url, payment));
    assert.deepEqual([...new Set(server.requests.map((r) => r.url))], [url]);
  }
});

test("R-70: a question has the request's credentials, and nothing that is about its body", async () => {
  const { client, server } = shop([{ network: true }, { status: 200, json: { state: "succeeded" } }], { statusURL: "/operations" });
  const headers = { Authorization: "Bearer 7", "Content-Type": "application/json", "If-Match": "x", Prefer: "wait=5" };
  await clock.until(client.fetch(url, { ...payment, headers }));
  const [request, question] = server.requests;
  assert.equal(question.headers.get("Authorization"), "Bearer 7");
  assert.equal(question.headers.get("X-Correlation-Id"), request.headers.get("X-Correlation-Id"));
  for (const name of ["Content-Type", "If-Match", "Prefer"]) assert.equal(question.headers.get(name), null, name);
});

test("questions that fail are counted in a row", async () => {
  const location = { headers: { Location: "/operations/1" } };
  const running = { status: 202, ...location };
  const down = { status: 503 };
  const options = { pollEvery: 50, maxAttempts: 2 };
  const { client } = shop([running, down, running, down, { status: 200, json: { state: "succeeded" } }], options);
  const { value } = await clock.until(client.fetch(url, payment));
  assert.equal(value.idempotent.state, "succeeded");

  const failing = shop([running, down, down], options);
  const { error } = await clock.until(failing.client.fetch(url, payment));
  assert.equal(error.reason, "attempts");
});

test("an operation is not asked about without a network", async (t) => {
  const network = offline(t);
  network.onLine = true;
  const accepted = () => {
    network.onLine = false;
    return new Response("", { status: 202, headers: { Location: "/operations/1" } });
  };
  const { client, server } = shop([accepted, { status: 200, json: { state: "succeeded" } }], { pollEvery: 50 });
  const answer = client.fetch(url, payment);
  await clock.settle();
  await clock.step(); // the delay
  assert.equal(server.requests.length, 1);
  network.onLine = true;
  assert.equal((await clock.until(answer)).value.idempotent.state, "succeeded");
});

test("a law of delays that knows no later retry asks for none", async () => {
  const { client, server } = shop([{ status: 503 }, { status: 503 }, ok], { backoff: (retry) => [10][retry] });
  await clock.until(client.fetch(url, payment));
  assert.deepEqual(server.requests.slice(1).map((r, i) => r.at - server.requests[i].at), [10, 0]);
});

test("questions have their own delay where a law of delays knows none", async () => {
  const down = { status: 503 };
  const script = [{ status: 202, headers: { Location: "/operations/1" } }, down, down, { status: 200, json: { state: "succeeded" } }];
  const { client, server } = shop(script, { pollEvery: 50, backoff: (retry) => [10][retry] });
  const { value } = await clock.until(client.fetch(url, payment));
  assert.equal(value.idempotent.state, "succeeded");
  assert.deepEqual(server.requests.slice(1).map((r, i) => r.at - server.requests[i].at), [50, 50, 50]);
});

test("a delay longer than the platform's longest timer is waited for", async () => {
  const forty = 40 * 24 * 3600;
  const { client, server } = shop([{ status: 503, headers: { "Retry-After": String(forty) } }, ok], {
    maxRetryAfter: forty * 1000,
    maxAge: 2 * forty * 1000,
  });
  const { value } = await clock.until(client.fetch(url, payment));
  assert.equal(value.status, 201);
  assert.equal(server.requests[1].at - server.requests[0].at, forty * 1000);
});

test("R-68: all calls of a client share its budget", async () => {
  const down = { status: 503 };
  const { client, server } = shop([down, down, down, down, ok], { budget: budget({ share: 0.5, burst: 1 }), maxAttempts: 2 });
  const reasons = [];
  for (let i = 0; i < 3; i++) {
    const { error } = await clock.until(client.fetch(url, payment));
    reasons.push(error?.reason);
  }
  assert.deepEqual(reasons, ["attempts", "budget", undefined]); // two halves pay for the third call's repeat
  assert.equal(server.requests.length, 5);
});

for (const [text, delay] of [
  ["Sunday, 06-Nov-94 08:49:47 GMT", 10_000],
  ["Sun Nov  6 08:49:47 1994", 10_000],
  ["Sun, 06 Nov 1994 08:49:47 UTC", 100],
  ["Sun, 31 Feb 1995 08:49:47 GMT", 100],
  ["Sun, 06 Nov 1994 25:49:47 GMT", 100],
  ["1994-11-06T08:49:47Z", 100],
  ["0x10", 100],
  ["1e3", 100],
  ["7, 7", 100],
]) {
  test(`R-67: Retry-After: ${text}`, async () => {
    const headers = { "Retry-After": text, Date: "Sun, 06 Nov 1994 08:49:37 GMT" };
    const { client, server } = shop([{ status: 503, headers }, ok]);
    await clock.until(client.fetch(url, payment));
    assert.equal(server.requests[1].at - server.requests[0].at, delay);
  });
}

test("a stream is refused before anything is sent, and no timer is left", async () => {
  const { client, server } = shop([]);
  const streams = [new Blob(["x"]).stream(), (async function* () {})()];
  for (const body of streams) {
    const call = client.fetch(url, { method: "POST", body, duplex: "half", timeout: 1000 });
    await assert.rejects(call, { name: "IdempotencyError", code: "BODY_NOT_REPEATABLE", attempts: 0 });
    assert.equal(clock.waiting, 0);
  }
  assert.equal(server.requests.length, 0);
});

for (const [what, make, change] of [
  ["bytes", () => new TextEncoder().encode("a=1"), (b) => b.fill(0)],
  ["parameters", () => new URLSearchParams("a=1"), (b) => b.set("a", "2")],
  ["a form", () => formOf({ a: "1" }), (b) => b.set("a", "2")],
  ["a form with a file", () => formOf({ a: "1", f: new Blob(["x"]) }), (b) => b.delete("f")],
  ["a blob", () => new Blob(["a=1"], { type: "text/plain" }), () => {}],
  ["text", () => "a=1", () => {}],
]) {
  test(`R-65: a body of ${what} has the same bytes in each attempt`, async () => {
    const { client, server } = shop([{ status: 503 }, ok]);
    const body = make();
    const answer = client.fetch(url, { method: "POST", body });
    change(body);
    await clock.until(answer);
    const [first, second] = server.requests;
    assert.match(first.body, /1/);
    assert.equal(first.body, second.body);
    assert.equal(first.headers.get("Content-Type"), second.headers.get("Content-Type"));
    if (body instanceof FormData) assert.match(first.headers.get("Content-Type"), /^multipart\/form-data; boundary=/);
  });
}

function formOf(fields) {
  const form = new FormData();
  for (const [name, value] of Object.entries(fields)) form.set(name, value);
  return form;
}

test("R-72: all attempts have one correlation id, the caller's own if there is one", async () => {
  const { client, server } = shop([{ status: 503 }, ok, ok, ok]);
  await clock.until(client.fetch(url, payment));
  await client.fetch(url, payment);
  await client.fetch(url, { ...payment, headers: { "X-Correlation-Id": "mine" } });
  const [a, b, c, d] = server.requests.map((r) => r.headers.get("X-Correlation-Id"));
  assert.match(a, /^[0-9a-f-]{36}$/);
  assert.equal(a, b);
  assert.notEqual(b, c);
  assert.equal(d, "mine");
});

test("attempts are told without the key", async () => {
  const { client, attempts } = shop([{ status: 503 }, ok]);
  await clock.until(client.fetch(url, { ...payment, key: "secret-1" }));
  assert.deepEqual(
    attempts.map(({ kind, number, method, host, status, again, delay }) => [kind, number, method, host, status, again, delay]),
    [
      ["request", 1, "POST", "api.example", 503, true, 100],
      ["request", 2, "POST", "api.example", 201, false, undefined],
    ],
  );
  assert.doesNotMatch(JSON.stringify(attempts), /secret/);
});

test("R-71: an error tells what the caller needs, and shows the key to nobody else", async () => {
  const problem = { code: "IDEMPOTENCY_KEY_REUSED", title: "used before", retryable: false };
  const { client } = shop([{ status: 422, problem }]);
  const { error } = await clock.until(client.fetch(url, { ...payment, key: "secret-1" }));
  assert.equal(error.key.value, "secret-1");
  assert.deepEqual(error.problem, problem);
  assert.deepEqual(await error.response.json(), problem);
  assert.doesNotMatch(`${error.stack} ${JSON.stringify(error)} ${Object.values(error)}`, /secret/);
});

test("an error says what is behind the platform's own", async () => {
  const refused = Object.assign(new AggregateError([]), { code: "ECONNREFUSED" });
  const fail = () => Promise.reject(new TypeError("fetch failed", { cause: refused }));
  const { client } = shop([fail], { maxAttempts: 1 });
  const { error } = await clock.until(client.fetch(url, payment));
  assert.equal(error.message, "idempotent call, 1 sent: ended by attempts: fetch failed: ECONNREFUSED");
});

test("a request that can't be made is refused as fetch does, once", async () => {
  const { client, server } = shop([]);
  await assert.rejects(client.fetch(url, { ...payment, method: "CONNECT", key: "order-42" }), TypeError);
  await assert.rejects(client.fetch(url, { ...payment, mode: "no-cors" }), TypeError);
  await assert.rejects(client.fetch(url, { ...payment, timeout: -1 }), TypeError);
  await assert.rejects(client.fetch(url, { ...payment, signal: {} }), /signal/);
  await assert.rejects(client.fetch("not an address", payment), TypeError);
  await assert.rejects(client.fetch(url, { body: "x" }), TypeError); // a GET
  assert.equal(server.requests.length, 0);
});

for (const key of ["", 7, {}, { value: 7 }, { value: "a", made: "2026-01-01" }, { value: "a", made: NaN }, { value: "é" }]) {
  test(`what is no key is refused: ${JSON.stringify(key)}`, async () => {
    const { client, server } = shop([], { bare: true });
    await assert.rejects(client.fetch(url, { ...payment, key }), { code: "IDEMPOTENCY_KEY_INVALID", attempts: 0 });
    assert.equal(server.requests.length, 0);
  });
}

test("what makes keys must make texts", async () => {
  const { client, server } = shop([], { keyFor: () => 42 });
  await assert.rejects(client.fetch(url, payment), { code: "IDEMPOTENCY_KEY_INVALID" });
  assert.equal(server.requests.length, 0);
});

test("keys can be made by the caller, or not at all", async () => {
  const made = ["order-42-charge", ""];
  const { client, keys } = shop([ok, ok], { keyFor: () => made.shift() });
  await client.fetch(url, payment);
  await client.fetch(url, payment);
  assert.deepEqual(keys(), ['"order-42-charge"', null]);
});

test("a page without TLS has keys as well", async (t) => {
  const { randomUUID } = crypto;
  Object.defineProperty(crypto, "randomUUID", { configurable: true, value: undefined });
  t.after(() => Object.defineProperty(crypto, "randomUUID", { configurable: true, value: randomUUID }));
  const { client, keys } = shop([ok]);
  await client.fetch(url, payment);
  assert.match(keys()[0], /^"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}"$/);
});

test("all that is wrong with the options is told at once", () => {
  const wrong = {
    maxAttemps: 3,
    maxAttempts: 0,
    maxAge: -1,
    header: "a b",
    correlationHeader: "",
    crossOrigin: ["https://a.example/x"],
    methods: ["GET"],
    budget: { off: true },
    polling,
    attempts: () => {},
    waitOnline: true,
  };
  for (const [make, options] of [
    [createClient, wrong],
    [budget, { share: 2, burst: -1, size: 1 }],
    [polling, { statusURL: "http://[::1", pollEvery: -1, every: 5 }],
    [(given) => operations(createClient(), given), { scope: 7, storage: {}, lock: "yes", storagePrefx: "" }],
  ]) {
    assert.throws(
      () => make(options),
      (e) => {
        assert.ok(e instanceof TypeError);
        for (const name of Object.keys(options)) assert.match(e.message, new RegExp(`\\b${name}\\b`));
        return true;
      },
    );
  }
  assert.throws(() => createClient({ header: "X-Id", correlationHeader: "x-id" }), TypeError);
  assert.throws(() => createClient({ budget }), /budget/);
  for (const method of ["post", " POST", "TRACE", 7]) assert.throws(() => createClient({ methods: [method] }), /methods/);
  assert.throws(() => attempts({}), TypeError);
  assert.throws(() => operations(createClient(), { storage: false }), /storage/);
  assert.throws(() => operations({ fetch }), TypeError);
  for (const backoff of [() => {}, fullJitter("a", 1000), () => -1]) {
    assert.throws(() => createClient({ backoff }), /backoff/);
  }
});
