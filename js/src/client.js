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
  const underWay = new Map(); // calls and their answers, by operation
  const prepare = (url, init, owner) => new Call(compiled, budget, url, init, owner);

  async function idempotentFetch(url, init = {}) {
    return (await prepare(url, init).run()).response;
  }

  function operation(name, { key } = {}) {
    if (typeof name !== "string" || name === "") throw new TypeError("idempotent client: an operation needs a name");
    keyOf(key); // or throws what is wrong with it
    return new Operation(name, key, keys, underWay, prepare);
  }

  return Object.freeze({ idempotentFetch, operation });
}
