import assert from "node:assert/strict";
import { createServer } from "node:http";

import axios from "axios";
import ky from "ky";
import nodeFetch from "node-fetch";
import createAPI from "openapi-fetch";
import { fetch as undici } from "undici";
import { createClient, IdempotencyError, operations } from "@semelhq/client";

// A server that breaks the connection of each key's first request, after the effect.
const effects = new Map();
const server = createServer(async (request, response) => {
  let body = "";
  for await (const chunk of request) body += chunk;
  const key = request.headers["idempotency-key"];
  const made = effects.get(key);
  if (!made) {
    effects.set(key, { number: effects.size + 1, body });
    request.socket.destroy();
    return;
  }
  assert.equal(body, made.body);
  response.writeHead(201, { "Content-Type": "application/json", "Idempotent-Replayed": "true" });
  response.end(JSON.stringify({ number: made.number, order: JSON.parse(body).order, padding: "x".repeat(100_000) }));
});
await new Promise((done) => server.listen(0, "127.0.0.1", done));
const url = `http://127.0.0.1:${server.address().port}`;
const headers = { "Content-Type": "application/json" };
const quick = { random: () => 0 };

let n = 0;
async function once(what, pay) {
  n++;
  const { order, number } = await pay(what);
  assert.deepEqual([order, number, effects.size], [what, n, n], what);
  console.log(what);
}

const plain = createClient(quick);
const init = (order) => ({ method: "POST", headers, body: JSON.stringify({ order }) });
await once("fetch", async (order) => (await plain.fetch(`${url}/orders`, init(order))).json());
await once("a Request", async (order) => (await plain.fetch(new Request(`${url}/orders`, init(order)))).json());

for (const [what, fetch] of Object.entries({ "node-fetch": nodeFetch, undici })) {
  const client = createClient({ ...quick, fetch });
  await once(what, async (order) => (await client.fetch(`${url}/orders`, init(order))).json());
}

await once("ky", (order) => ky.post(`${url}/orders`, { json: { order }, fetch: plain.fetch, retry: 0 }).json());

await once("openapi-fetch", async (order) => (await createAPI({ baseUrl: url, fetch: plain.fetch }).POST("/orders", { body: { order } })).data);

const http = axios.create({ adapter: "fetch", env: { fetch: plain.fetch } });
await once("axios", async (order) => (await http.post(`${url}/orders`, { order })).data);

// A server whose users are many: whose the operation is, is said for each.
await once("a Node server", async (order) => {
  const client = operations(plain);
  const both = ["ada", "ada"].map((scope) => client.operation("checkout", { scope }).fetch(`${url}/orders`, init(order)));
  const [first, second] = await Promise.all(both.map(async (answer) => (await answer).json()));
  assert.deepEqual(first, second);
  return first;
});

assert.ok(new IdempotencyError({}) instanceof Error);
server.close();
