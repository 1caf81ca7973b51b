import { parseDate } from "./httpdate.js";

/** A delay that no limit allows: a hundred years, in milliseconds. */
const never = 100 * 365 * 24 * 3600 * 1000;

/**
 * How many milliseconds a response asks to wait, the longest where it says so in several fields; undefined if it does not.
 * What can't be read says nothing; a date in the past asks for no delay.
 */
export function retryAfter(status, headers, now) {
  const asked = [deltaOrDate(headers, now), ...rateLimitResets(status, headers)].filter((ms) => ms !== undefined);
  return asked.length > 0 ? Math.max(...asked) : undefined;
}

/**
 * Reads Retry-After (RFC 9110, section 10.2.3). A date is relative to that of the response if there is one: what the two
 * clocks say differs.
 */
export function deltaOrDate(headers, now) {
  const text = headers.get("Retry-After") ?? "";
  const delta = seconds(text);
  if (delta !== undefined) return delta;
  const at = parseDate(text);
  if (at === undefined) return undefined;
  return Math.min(Math.max(at - (parseDate(headers.get("Date") ?? "") ?? now), 0), never);
}

/** Reads a whole number of seconds that is not negative, in milliseconds; one that is too large is never. */
function seconds(text) {
  return /^[0-9]+$/.test(text ?? "") ? Math.min(Number(text) * 1000, never) : undefined;
}

/**
 * Reads how long the quotas that are used up need to come back, from RateLimit of draft-ietf-httpapi-ratelimit-headers: a list of
 * policies with the parameters r and t. A quota of which the rest is not told is used up if the status is 429.
 */
function rateLimitResets(status, headers) {
  return (headers.get("RateLimit") ?? "").split(",").map((policy) => {
    const [, left] = /;\s*r=([^;\s]*)/.exec(policy) ?? [];
    const [, reset] = /;\s*t=([^;\s]*)/.exec(policy) ?? [];
    return (seconds(left) ?? (status === 429 ? 0 : 1)) === 0 ? seconds(reset) : undefined;
  });
}
