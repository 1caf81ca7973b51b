import { budgetOf } from "./budget.js";
import { prepare } from "./call.js";
import { responseOf } from "./exchange.js";
import { keyOf, maySent } from "./key.js";
import { compile } from "./options.js";
import { requestOf } from "./request.js";

/** What operations share with the client that they are of: its options, and how it prepares a call. */
export const insides = new WeakMap();

/** Returns a client whose calls share a budget; throws a TypeError that says what is wrong with the options. */
export function createClient(given = {}) {
  const options = compile(given);
  const budget = budgetOf(options.budget);

  async function fetch(input, init) {
    const request = requestOf(input, init);
    const key = keyOf(request.key);
    const call = prepare(options, budget, request);
    try {
      await call.use(key, key && maySent(request.key));
      const reply = await call.run();
      return responseOf(reply, reply.idempotent);
    } finally {
      call.close();
    }
  }

  const client = { fetch };
  insides.set(client, { options, prepare: (request, operation) => prepare(options, budget, request, operation) });
  return client;
}
