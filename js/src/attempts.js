import { isOwn } from "./options.js";
import { tell } from "./tell.js";

/** Tells a function of each attempt of a client's calls, and of each question, just after that has ended. */
export function attempts(f) {
  if (typeof f !== "function") throw new TypeError("attempts tells a function");
  return {
    tell(call, delay) {
      const { operation, options, headers, error, response, started, reason, kind, number, method, url } = call;
      const { correlationHeader = isOwn(call) && "X-Correlation-Id" } = options;
      tell(f, {
        ...{ operation, error, delay, reason, number },
        correlation: (correlationHeader && headers.get(correlationHeader)) || undefined,
        took: Date.now() - started,
        kind: kind ?? "request",
        method: kind ? "GET" : method,
        host: url.host,
        status: error ? undefined : response.status,
        again: delay !== undefined,
      });
    },
  };
}
