import { attempts, createClient, operations, polling, untilOnline } from "../src/index.js";
import { Server } from "./server.js";

globalThis.window ??= {}; // operations need no scope in what looks like a page

export const url = "https://api.example/payments";
export const payment = { method: "POST", body: '{"amount":5}' };

/** A server with a script and a client of it with all that there is, whose delays are as long as they may be. */
export function shop(script, options = {}) {
  const server = new Server(script);
  const warnings = [];
  const told = [];
  const { statusURL, pollEvery, onAttempt = (a) => told.push(a), waitOnline = true, ...more } = options;
  const { storage = "storage" in options ? undefined : null, lock, scope, onWarning = (w) => warnings.push(w), ...rest } = more;
  const plain = createClient({
    fetch: server.fetch,
    random: () => 1,
    polling: polling({ statusURL, pollEvery }),
    attempts: attempts(onAttempt),
    waitOnline: waitOnline ? untilOnline : undefined,
    ...rest,
  });
  const client = operations(plain, { storage, lock, scope, onWarning, waitOnline });
  return { server, client, warnings, attempts: told, keys: () => server.requests.map((r) => r.key) };
}
