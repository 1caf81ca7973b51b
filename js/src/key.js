import { invalid } from "./errors.js";

const unsent = new WeakSet(); // keys that were made here and are in no request yet

/** Makes a key: a random UUID (version 4, RFC 9562), made now. */
export function newKey() {
  const key = { value: randomUUID(), made: Date.now() };
  unsent.add(key);
  return key;
}

/** Takes a key for a request, and reports whether it may have been in one before. */
export const maySent = (key) => typeof key === "string" || !unsent.delete(key);

/** A random UUID. Pages that were not fetched over TLS have no crypto.randomUUID. */
export function randomUUID() {
  if (crypto.randomUUID) return crypto.randomUUID();
  const random = (least) => least + (crypto.getRandomValues(new Uint8Array(1))[0] % (least ? 4 : 16));
  return "00000000-0000-4000-8000-000000000000".replace(/[08]/g, (c) => random(Number(c)).toString(16));
}

/** The key that a caller gives, as text or with its age; undefined if none. */
export function keyOf(given) {
  if (given == null) return undefined;
  const { value, made = Date.now() } = typeof given === "string" ? { value: given } : given;
  encode(value);
  if (!Number.isFinite(made)) invalid("made is no number of milliseconds");
  return { value, made };
}

/** The header's text for a key: an sf-string (RFC 9651, section 3.3.3), or as it is. An error never repeats the key. */
export function encode(key, bare) {
  if (typeof key !== "string" || !/^[ -~]{1,255}$/.test(key)) invalid("the key is not 1 to 255 visible ASCII characters");
  if (!bare) return `"${key.replace(/["\\]/g, "\\$&")}"`;
  if (/[ "\\,;]/.test(key)) invalid("the bare form does not allow a character of the key");
  return key;
}

/** The key in a header's text, in either form. The parameters behind a closing quote are left to the server. */
export function decode(text) {
  const trimmed = text.trim();
  if (!trimmed.startsWith('"')) return encode(trimmed, true);
  const quoted = /^"((?:[^"\\]|\\["\\])*)" *(?:;.*)?$/s.exec(trimmed);
  if (!quoted) invalid("the quotes of the key are malformed");
  const key = quoted[1].replace(/\\(.)/g, "$1");
  encode(key);
  return key;
}
