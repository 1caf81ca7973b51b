/**
 * How many milliseconds a response asks to wait, at most a hundred years, the longest where it says so in several
 * fields; -1 if it does not. What can't be read says nothing; a date in the past asks for no delay.
 */
export function retryAfter({ status, headers }, now) {
  // Retry-After (RFC 9110, section 10.2.3). A date is relative to that of the response if there is one: what the two
  // clocks say differs.
  const text = headers.get("Retry-After");
  const at = parseDate(text);
  let asked = isNaN(at) ? seconds(text) : Math.max(0, at - (parseDate(headers.get("Date")) || now));
  // RateLimit of draft-ietf-httpapi-ratelimit-headers, a list of policies: how long the quotas that are used up need to
  // come back. A quota of which the rest is not told is used up if the status is 429.
  for (const policy of `${headers.get("RateLimit")}`.split(",")) {
    const left = seconds(/;\s*r=([^\s;]*)/.exec(policy)?.[1]);
    if (!left || (status === 429 && left < 0)) asked = Math.max(asked, seconds(/;\s*t=([^\s;]*)/.exec(policy)?.[1]));
  }
  return Math.min(asked, 31536e8);
}

/** Reads a whole number of seconds that is not negative, in milliseconds; -1 if it is none. */
const seconds = (text) => (/^\d+$/.test(text) ? text * 1000 : -1);

/**
 * Reads a date in one of the three forms of RFC 9110, section 5.6.7, in milliseconds; NaN if it is none. Date.parse
 * alone would take nearly anything, such as -7, for a date.
 */
function parseDate(text) {
  const at = /^[A-Z].+:\d\d (GMT|\d{4})$/.test(text) ? Date.parse(text.replace(/\d$/, "$& GMT")) : NaN;
  return new Date(at).getUTCDate() === +/\d+/.exec(text) ? at : NaN; // the 31st of February is none
}
