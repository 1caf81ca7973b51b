import { Budget } from "./budget.js";
import { Call } from "./call.js";
import { responseOf } from "./exchange.js";
import { keyOf, maySent } from "./key.js";
import { KeyStore } from "./keystore.js";
import { Operation } from "./operation.js";
import { compile } from "./options.js";
import { requestOf } from "./request.js";

/** Returns a client whose calls share a budget and a storage; throws a TypeError that says what is wrong with the options. */
export function createClient(given = {}) {
  const options = compile(given);
  const budget = new Budget(options.budget);
  const keys = new KeyStore(options);
  const prepare = (request, operation) => new Call(options, budget, request, operation);
  const client = { options, keys, prepare, underWay: new Map() }; // underWay: calls and their answers, by operation

  async function fetch(input, init) {
    const request = requestOf(input, init);
    const key = keyOf(request.key);
    const call = prepare(request);
    await call.use(key, key && maySent(request.key));
    const reply = await call.run();
    return responseOf(reply, reply.idempotent);
  }

  function operation(name, { key, scope = options.scope } = {}) {
    if (typeof name !== "string" || name === "") throw new TypeError("idempotent client: an operation needs a name");
    if (scope === undefined && globalThis.window === undefined) {
      throw new TypeError("idempotent client: outside of a page an operation needs a scope, such as the user's id");
    }
    return new Operation(name, scope === undefined ? name : `${encodeURIComponent(scope)}/${name}`, key, client);
  }

  return Object.freeze({ fetch, operation });
}
