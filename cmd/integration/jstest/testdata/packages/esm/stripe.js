import assert from "node:assert/strict";
import { createServer, request as ask } from "node:http";

import mock from "stripe-stateful-mock";
import { budget, createClient, stripe } from "@semelhq/client";

// Stripe as others have written it, behind a network that loses requests and answers.
const calls = Number(process.argv[2]);
const vendor = await new Promise((done) => {
  const server = mock.createExpressApp().listen(0, "127.0.0.1", () => done(server));
});
let seed = 11;
const random = () => (seed = (seed * 16807) % 2147483647) / 2147483647;
const flaky = createServer((incoming, outgoing) => {
  const fault = random();
  if (fault < 0.2) return incoming.socket.destroy();
  const { method, url, headers } = incoming;
  const passed = ask({ port: vendor.address().port, host: "127.0.0.1", method, path: url, headers }, (answer) => {
    if (fault < 0.4) return incoming.socket.destroy(), answer.resume();
    outgoing.writeHead(answer.statusCode, answer.headers);
    answer.pipe(outgoing);
  });
  incoming.pipe(passed);
});
await new Promise((done) => flaky.listen(0, "127.0.0.1", done));

const url = `http://127.0.0.1:${flaky.address().port}/v1/charges`;
const client = createClient({ dialect: stripe(), maxAttempts: 50, backoff: () => 0, budget: budget({ off: true }) });
const headers = { Authorization: `Basic ${btoa("sk_test_semel:")}` };
const charge = (fields, key) => client.fetch(url, { method: "POST", headers, body: new URLSearchParams(fields), key });
const ids = new Set();
for (let n = 0; n < calls; n++) {
  const answer = await charge({ amount: 100 + n, currency: "usd", source: "tok_visa" });
  const made = await answer.json();
  assert.deepEqual([answer.status, made.amount], [200, 100 + n], JSON.stringify(made));
  ids.add(made.id);
}
let made = [];
for (let after = ""; ; after = `&starting_after=${made.at(-1).id}`) {
  const page = await (await client.fetch(`${url}?limit=100${after}`, { headers })).json();
  made.push(...page.data);
  if (!page.has_more) break;
}
assert.equal(made.length, calls);
assert.equal(ids.size, calls);

await charge({ amount: 5000, currency: "usd", source: "tok_visa" }, "order-42");
await assert.rejects(charge({ amount: 6000, currency: "usd", source: "tok_visa" }, "order-42"), { code: "IDEMPOTENCY_KEY_REUSED" });
const declined = await charge({ amount: 5000, currency: "usd", source: "tok_chargeDeclined" }, "order-43");
assert.equal(declined.status, 402);
console.log(`${ids.size} charges`);
process.exit(0);
