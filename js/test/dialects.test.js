import assert from "node:assert/strict";
import { afterEach, beforeEach, test } from "node:test";

import { Clock } from "../harness/clock.js";
import { payment, shop, url } from "../harness/shop.js";
import { adyen, budget, createClient, draft07, paypal, square, stripe } from "../src/index.js";

let clock;
beforeEach(() => (clock = new Clock().install()));
afterEach(() => clock.uninstall());

const header = (name) => (init) => init.headers.get(name);

// Servers that answer as an API of the dialect does, whose own network is flaky. The facts are of the public documentation.
const vendors = {
  stripe: {
    dialect: stripe(),
    key: header("Idempotency-Key"),
    busy: [409, { error: { type: "idempotency_error", code: "idempotency_key_in_use" } }],
    trouble: [424, { error: { type: "api_error" } }, { "Stripe-Should-Retry": "true" }],
  },
  square: {
    dialect: square(),
    key: (init) => JSON.parse(init.body).idempotency_key,
    busy: [429, { errors: [{ category: "RATE_LIMIT_ERROR", code: "RATE_LIMITED" }] }],
    trouble: [500, { errors: [{ category: "API_ERROR" }] }],
  },
  paypal: {
    dialect: paypal(),
    key: header("PayPal-Request-Id"),
    busy: [409, { name: "RESOURCE_CONFLICT", details: [{ issue: "PREVIOUS_REQUEST_IN_PROGRESS" }] }],
    trouble: [503, { name: "SERVICE_UNAVAILABLE" }],
  },
  adyen: {
    dialect: adyen(),
    key: header("Idempotency-Key"),
    busy: [422, { errorCode: "704" }, { "transient-error": "true" }],
    trouble: [422, { errorCode: "905" }, { "transient-error": "true" }],
  },
  draft07: {
    dialect: draft07(),
    key: header("Idempotency-Key"),
    busy: [409, { title: "A request is outstanding for this Idempotency-Key" }],
    trouble: [503, {}],
  },
};

const calls = process.env.SEMEL_LONG ? 1000 : 100;

for (const [name, vendor] of Object.entries(vendors)) {
  test(`R-66: ${calls} calls to a flaky ${name} have ${calls} effects, and end with their own answers`, async () => {
    let seed = 7;
    const random = () => (seed = (seed * 16807) % 2147483647) / 2147483647;
    const effects = new Map();
    const say = ([status, body, headers]) => new Response(JSON.stringify(body), { status, headers });
    const run = (init) => {
      const key = vendor.key(init);
      assert.ok(key);
      const made = effects.get(key);
      if (made) return clock.now < made.ended ? say(vendor.busy) : say([201, made.body]);
      if (random() < 0.1) return say(vendor.trouble);
      const body = { payment: JSON.parse(init.body).payment };
      effects.set(key, { body, ended: clock.now + Math.floor(random() * 3) * 1000 });
      return say([201, body]);
    };
    const fetch = async (_, init) => {
      const fault = random();
      if (fault < 0.2) throw new TypeError("lost before");
      const answer = run(init);
      if (fault < 0.4) throw new TypeError("lost after");
      return answer;
    };
    const client = createClient({ fetch, dialect: vendor.dialect, maxAttempts: 100, random, budget: budget({ off: true }) });
    for (let n = 0; n < calls; n++) {
      const { value, error } = await clock.until(client.fetch(url, { method: "POST", body: JSON.stringify({ payment: n }) }));
      assert.ifError(error);
      assert.deepEqual([value.status, await value.json()], [201, { payment: n }]);
    }
    assert.equal(effects.size, calls);
  });
}

test("R-65: a key in the body leaves the rest of that as it is, and gives way to the caller's own", async () => {
  for (const [body, want] of [
    ["{}", '{"idempotency_key":"k"}'],
    [' { "a": 12345678901234567890 } ', ' {"idempotency_key":"k", "a": 12345678901234567890 } '],
    ['{"idempotency_key":"k","a":1}', '{"idempotency_key":"k","a":1}'],
    ['{"idempotency_key":"other"}', undefined],
    ["[]", undefined],
    ["null", undefined],
    ["", undefined],
  ]) {
    const { client, server } = shop([{ status: 201 }], { dialect: square() });
    const { error } = await clock.until(client.fetch(url, { ...payment, body, key: "k" }));
    assert.equal(server.requests[0]?.body, want, body);
    assert.equal(error === undefined, want !== undefined, `${error}`);
  }
});

test("a dialect is what its function returns", () => {
  assert.throws(() => createClient({ dialect: stripe }), /dialect/);
  assert.throws(() => createClient({ dialect: "stripe" }), /dialect/);
});
