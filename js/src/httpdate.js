const months = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
const day = "(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun)";
const month = `(?<month>${months.join("|")})`;
const time = "(?<hour>\\d\\d):(?<minute>\\d\\d):(?<second>\\d\\d)";

const forms = [
  new RegExp(`^${day}, (?<day>\\d\\d) ${month} (?<year>\\d{4}) ${time} GMT$`),
  new RegExp(`^${day}[a-z]*, (?<day>\\d\\d)-${month}-(?<year>\\d\\d) ${time} GMT$`),
  new RegExp(`^${day} ${month} (?<day>[ \\d]\\d) ${time} (?<year>\\d{4})$`),
];

/**
 * Reads a date in one of the three forms of RFC 9110, section 5.6.7, in milliseconds; undefined if it is none. Date.parse
 * would take nearly anything, such as -7, for a date.
 */
export function parseDate(text) {
  for (const form of forms) {
    const found = form.exec(text)?.groups;
    if (!found) continue;
    let year = Number(found.year);
    if (found.year.length === 2) year += year < 69 ? 2000 : 1900;
    const fields = [year, months.indexOf(found.month), found.day, found.hour, found.minute, found.second].map(Number);
    const at = new Date(Date.UTC(...fields));
    const read = [at.getUTCFullYear(), at.getUTCMonth(), at.getUTCDate(), at.getUTCHours(), at.getUTCMinutes(), at.getUTCSeconds()];
    return read.every((n, i) => n === fields[i]) ? at.getTime() : undefined; // the 31st of February is none
  }
  return undefined;
}
