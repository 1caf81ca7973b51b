/**
 * Shows an amount of minor units, such as cents. It is an integer everywhere, and shown without arithmetic on fractions: Intl
 * takes decimal numbers as text.
 */
export function money(amount, currency) {
  const format = new Intl.NumberFormat(document.documentElement.lang, { style: "currency", currency });
  const digits = format.resolvedOptions().maximumFractionDigits;
  const text = String(amount).padStart(digits + 1, "0");
  return format.format(digits === 0 ? text : `${text.slice(0, -digits)}.${text.slice(-digits)}`);
}
