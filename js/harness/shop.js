import { createClient } from "../src/index.js";
import { Server } from "./server.js";

globalThis.window ??= {}; // operations need no scope in what looks like a page

export const url = "https://api.example/payments";
export const payment = { method: "POST", body: '{"amount":5}' };

/** A server with a script and a client of it, whose delays are as long as they may be. */
export function shop(script, options = {}) {
  const server = new Server(script);
  const warnings = [];
  const attempts = [];
  const hooks = { onWarning: (w) => warnings.push(w), onAttempt: (a) => attempts.push(a) };
  const client = createClient({ fetch: server.fetch, storage: null, random: () => 1, ...hooks, ...options });
  return { server, client, warnings, attempts, keys: () => server.requests.map((r) => r.key) };
}
