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
 * Reads how long the quotas that are used up need to come back, from the fields of draft-ietf-httpapi-ratelimit-headers:
 * RateLimit, a list of policies with the parameters r and t, in older drafts a dictionary of remaining and reset; or
 * RateLimit-Remaining and RateLimit-Reset, older still. A quota of which the rest is not told is used up if the status is
 * 429.
 */
function rateLimitResets(status, headers) {
  const quotas = [[headers.get("RateLimit-Remaining"), headers.get("RateLimit-Reset")]];
  const dictionary = new Map();
  for (const policy of (headers.get("RateLimit") ?? "").split(",")) {
    const parameters = new Map();
    policy.split(";").forEach((part, i) => {
      const [name, value] = cut(part);
      (i === 0 ? dictionary : parameters).set(name, value);
    });
    quotas.push([parameters.get("r"), parameters.get("t")]);
  }
  quotas.push([dictionary.get("remaining"), dictionary.get("reset")]);
  return quotas
    .filter(([remaining]) => {
      const left = seconds(remaining);
      return left === undefined ? status === 429 : left === 0;
    })
    .map(([, reset]) => seconds(reset));
}

/** Divides a parameter at its first equals sign. */
function cut(part) {
  const [name, ...value] = part.trim().split("=");
  return [name, value.length > 0 ? value.join("=") : undefined];
}
