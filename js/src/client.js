import { prepare } from "./call.js";
import { responseOf } from "./exchange.js";
import { fill } from "./fill.js";
import { known } from "./options.js";
import { requestOf } from "./request.js";

/**
 * Returns a client whose calls share a budget; throws a TypeError that says what is wrong with the options. send sends
 * a request, and follows redirects as far as the platform does not.
 */
export function clientOf(send, given = {}) {
  const options = fill(known, given, given.dialect);
  options.budget = options.budget();
  options.send = send;
  return {
    async fetch(input, init) {
      const call = prepare(requestOf(input, init), options);
      return responseOf(await call.bounded(call.run));
    },
    options, // for operations
  };
}
