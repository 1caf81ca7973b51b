import { parseDate } from "./httpdate.js";

/** A delay that no limit allows: a hundred years, in milliseconds. */
const never = 100 * 365 * 24 * 3600 * 1000;

/**
 * How many milliseconds a response asks to wait, the longest where it says so in several fields; undefined if it does not.
 * What can't be read says nothing; a date in the past asks for no delay.
 */
export function retryAfter(status, headers, now) {
  const asked = [deltaOrDate(headers, now), ...rateLimitResets(status, headers)].filter((ms) => ms >= 0);
  return asked[0] === undefined ? undefined : Math.max(...asked);
}

/**
 * Reads Retry-After (RFC 9110, section 10.2.3). A date is relative to that of the response if there is one: what the two
 * clocks say differs.
 */
export function deltaOrDate(headers, now) {
  const text = headers.get("Retry-After");
  const at = parseDate(text);
  if (at === undefined) return seconds(text);
  return Math.min(Math.max(at - (parseDate(headers.get("Date")) ?? now), 0), never);
}

/** Reads a whole number of seconds that is not negative, in milliseconds; one that is too large is never. */
const seconds = (text) => (/^\d+$/.test(text) ? Math.min(text * 1000, never) : undefined);

/**
 * Reads how long the quotas that are used up need to come back, from RateLimit of draft-ietf-httpapi-ratelimit-headers: a list of
 * policies with the parameters r and t. A quota of which the rest is not told is used up if the status is 429.
 */
function rateLimitResets(status, headers) {
  return (headers.get("RateLimit") ?? "").split(",").map((policy) => {
    const of = (name) => seconds(policy.match(`;\\s*${name}=([^;\\s]*)`)?.[1]);
    return (of("r") ?? (status === 429 ? 0 : 1)) === 0 ? of("t") : undefined;
  });
}
