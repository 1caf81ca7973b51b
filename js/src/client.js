import { Budget } from "./budget.js";
import { Call } from "./call.js";
import { keyOf } from "./key.js";
import { KeyStore } from "./keystore.js";
import { Operation } from "./operation.js";
import { compile } from "./options.js";

/** Returns a client whose calls share a budget and a storage; throws a TypeError that says what is wrong with the options. */
export function createClient(options = {}) {
  const compiled = compile(options);
  const budget = new Budget(compiled.budget);
  const keys = new KeyStore(compiled);
  const underWay = new Map(); // answers by operation

  async function send(url, init, key, operation) {
    const { response, facts, nothingKept } = await new Call(compiled, budget, url, init, key, operation).run();
    Object.defineProperty(response, "idempotent", { value: Object.freeze(facts) });
    return { response, ...facts, nothingKept };
  }

  async function idempotentFetch(url, { key, ...init } = {}) {
    return (await send(url, init, keyOf(key))).response;
  }

  function operation(name) {
    if (typeof name !== "string" || name === "") throw new TypeError("idempotent client: an operation needs a name");
    return new Operation(name, keys, underWay, send);
  }

  return Object.freeze({ idempotentFetch, operation });
}
