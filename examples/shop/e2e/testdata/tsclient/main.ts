// Orders once by the types that are generated from the shop's description, though an answer is lost.
import createAPI from "openapi-fetch";
import { createClient } from "@semelhq/client";
import type { paths } from "./shop.js";

const [url, token] = process.argv.slice(2);
let sent = 0;
const once = createClient({
  // Loses the first answer.
  fetch: async (url, init) => {
    const answer = await fetch(url, init);
    if (++sent === 1) throw new TypeError("the answer is lost");
    return answer;
  },
});

const api = createAPI<paths>({
  baseUrl: url,
  headers: { Authorization: `Bearer ${token}` },
  fetch: once.fetch,
});

const { data, error, response } = await api.POST("/api/v1/orders", {
  params: { header: { "Idempotency-Key": crypto.randomUUID() } },
  body: { lines: [{ product: "book-1", quantity: 600 }] },
});
if (!data) throw new Error(`${response.status} ${error.code}: ${error.detail}`);
console.log(sent, response.headers.get("Idempotent-Replayed"), data.total);
