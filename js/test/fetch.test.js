import assert from "node:assert/strict";
import { test } from "node:test";

import { payment, shop, url } from "../harness/shop.js";
import { createClient, newKey } from "../src/index.js";

const ok = { status: 201, json: { id: 1 } };
const quick = { random: () => 0 };

test("R-65: a Request is sent with the same bytes in each attempt", async () => {
  const { client, server } = shop([{ network: true }, ok], quick);
  const controller = new AbortController();
  const request = new Request(url, { ...payment, headers: { "X-Own": "1" }, credentials: "include", signal: controller.signal });
  const answer = await client.fetch(request, { headers: { "X-Other": "2" } });
  assert.equal(answer.status, 201);
  assert.deepEqual(server.requests.map((r) => r.body), [payment.body, payment.body]);
  assert.deepEqual(server.requests.map((r) => r.method), ["POST", "POST"]);
  assert.ok(server.requests[0].key);
  assert.equal(server.requests[0].headers.get("X-Other"), "2"); // an init's headers replace those of the Request, as with fetch
  assert.equal(server.requests[0].headers.get("X-Own"), null);
  assert.equal(request.bodyUsed, true);
  await assert.rejects(client.fetch(request), TypeError); // as fetch does
});

test("a Request's own signal ends the call with its own reason", async () => {
  const hang = ({ signal }) => new Promise((_, fail) => signal.addEventListener("abort", () => fail(signal.reason)));
  const { client } = shop([hang]);
  const controller = new AbortController();
  const answer = client.fetch(new Request(url, { ...payment, signal: controller.signal }));
  setTimeout(() => controller.abort(new RangeError("mine")), 5);
  await assert.rejects(answer, (error) => error instanceof RangeError && error.message === "mine");
});

test("a Request of another maker will do", async () => {
  class Foreign {
    url = url;
    method = "POST";
    headers = new Headers({ "Content-Type": "application/json" });
    arrayBuffer = async () => new TextEncoder().encode(payment.body).buffer;
  }
  const { client, server } = shop([{ status: 503 }, ok], quick);
  await client.fetch(new Foreign());
  assert.deepEqual(server.requests.map((r) => r.body), [payment.body, payment.body]);
});

test("an answer is the platform's, whatever fetch it came from, and says where it is from", async () => {
  const foreign = {
    status: 402,
    statusText: "Payment Required",
    headers: new Map([["content-type", "text/plain"]]),
    url: `${url}/1`,
    redirected: true,
    type: "basic",
    arrayBuffer: async () => new TextEncoder().encode("declined").buffer,
  };
  const { client } = shop([() => foreign]);
  const answer = await client.fetch(url, payment);
  assert.ok(answer instanceof Response);
  assert.deepEqual([answer.status, answer.statusText, answer.url, answer.redirected, answer.ok], [402, "Payment Required", `${url}/1`, true, false]);
  assert.equal(answer.clone().status, 402);
  assert.equal(await answer.text(), "declined");
});

test("R-65: a key that the client has not just made may have been sent", async () => {
  const fresh = newKey();
  for (const [what, key, pending] of [
    ["new", fresh, false],
    ["the same again", fresh, true],
    ["kept", JSON.parse(JSON.stringify(newKey())), true],
    ["derived", "order-42", true],
    ["made for the call", undefined, false],
  ]) {
    const { client } = shop([{ status: 422 }]);
    const call = client.fetch(url, { ...payment, key });
    if (pending) await assert.rejects(call, { code: "IDEMPOTENCY_OUTCOME_PENDING" }, what);
    else assert.equal((await call).status, 422, what);
  }
});

for (const [verdict, code, sent] of [
  ["answer", undefined, 2],
  ["reused", "IDEMPOTENCY_KEY_REUSED", 2],
  ["unknown", "IDEMPOTENCY_OUTCOME_PENDING", 2],
  [undefined, "IDEMPOTENCY_OUTCOME_PENDING", 2],
  ["retry", undefined, 4],
]) {
  test(`R-66: what the caller says of an answer counts: ${verdict}`, async () => {
    const busy = { status: 409, json: { error: "busy" } };
    const classify = async (response, before) => ((await response.json()).error === "busy" && before ? verdict : undefined);
    const { client, server } = shop([{ network: true }, busy, busy, busy], { ...quick, classify });
    const call = client.fetch(url, payment);
    if (verdict === "answer") assert.deepEqual(await (await call).json(), { error: "busy" });
    else await assert.rejects(call, { code, reason: verdict === "retry" ? "attempts" : undefined });
    assert.equal(server.requests.length, sent);
  });
}

test("R-69: on a server a redirect to another origin takes no credentials along, and the key only by name", async () => {
  const away = { status: 307, headers: { Location: "https://eu.api.example/payments" } };
  const headers = { Authorization: "Bearer 7" };
  const { client, server } = shop([away, ok], { crossOrigin: ["https://eu.api.example"] });
  assert.equal((await client.fetch(url, { ...payment, headers })).status, 201);
  assert.equal(server.requests[1].key, server.requests[0].key);
  assert.equal(server.requests[1].body, payment.body);
  assert.equal(server.requests[1].headers.get("Authorization"), null);
  assert.equal(server.requests[1].headers.get("X-Correlation-Id"), null);
  const refused = shop([away]);
  await assert.rejects(refused.client.fetch(url, { ...payment, headers }), (e) => /eu\.api\.example/.test(e.message) && e.response.status === 307);
});

/** Lets the client believe that it is in a page. */
function page(t, href) {
  Object.defineProperty(globalThis, "location", { configurable: true, value: new URL(href) });
  t.after(() => delete globalThis.location);
}

test("R-72: another origin than the page's gets no header that it has not allowed", async (t) => {
  page(t, "https://shop.example/checkout");
  const { client, server } = shop([ok, ok]);
  await client.fetch(url, payment);
  await client.fetch("/payments", payment);
  const named = shop([ok], { correlationHeader: "X-Request-Id" });
  await named.client.fetch(url, payment);
  assert.equal(server.requests[0].headers.get("X-Correlation-Id"), null);
  assert.match(server.requests[1].headers.get("X-Correlation-Id"), /^[0-9a-f-]{36}$/);
  assert.match(named.server.requests[0].headers.get("X-Request-Id"), /^[0-9a-f-]{36}$/);
});

test("R-69: in a page a request to its own origin may not be led elsewhere, unless that is allowed", async (t) => {
  page(t, "https://shop.example/checkout");
  const modes = [];
  const fetch = (_, init) => (modes.push(init.mode), new Response("{}", { status: 201 }));
  await createClient({ fetch }).fetch("/payments", payment);
  await createClient({ fetch, crossOrigin: ["https://eu.shop.example"] }).fetch("/payments", payment);
  await createClient({ fetch }).fetch(url, payment);
  assert.deepEqual(modes, ["same-origin", undefined, undefined]);
});
