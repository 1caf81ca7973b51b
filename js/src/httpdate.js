/**
 * Reads a date in one of the three forms of RFC 9110, section 5.6.7, in milliseconds; undefined if it is none. Date.parse alone
 * would take nearly anything, such as -7, for a date.
 */
export function parseDate(text) {
  const form = /^(Mon|Tue|Wed|Thu|Fri|Sat|Sun)[a-z]*,? (\d\d[ -]\w{3}[ -](\d\d){1,2} [\d:]{8} GMT|\w{3} [ \d]\d [\d:]{8} \d{4})$/;
  if (!form.test(text)) return undefined;
  const at = Date.parse(text.endsWith("T") ? text : `${text} GMT`);
  return new Date(at).getUTCDate() === Number(/\d+/.exec(text)) ? at : undefined; // the 31st of February is none
}
