import { createClient, operations, polling } from "../src/index.js";
import { Server } from "./server.js";

globalThis.window ??= {}; // operations need no scope in what looks like a page

export const url = "https://api.example/payments";
export const payment = { method: "POST", body: '{"amount":5}' };

/** A server with a script and a client of it with all that there is, whose delays are as long as they may be. */
export function shop(script, options = {}) {
  const server = new Server(script);
  const warnings = [];
  const attempts = [];
  const { statusURL, pollEvery, ...more } = options;
  const { storage = "storage" in options ? undefined : null, lock, scope, onWarning = (w) => warnings.push(w), ...rest } = more;
  const onAttempt = (a) => attempts.push(a);
  const asks = polling({ statusURL, pollEvery });
  const plain = createClient({ fetch: server.fetch, random: () => 1, onAttempt, polling: asks, ...rest });
  const client = operations(plain, { storage, lock, scope, onWarning });
  return { server, client, warnings, attempts, keys: () => server.requests.map((r) => r.key) };
}
