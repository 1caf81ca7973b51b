import { invalid } from "./errors.js";

let unsent; // the keys that were made here and are in no request yet, once there was one

/** Makes a key: a random UUID (version 4, RFC 9562), made now. */
export function newKey() {
  const key = { value: randomUUID(), made: Date.now() };
  unsent ??= new WeakSet();
  unsent.add(key);
  return key;
}

/** Takes a key for a request, and reports whether it may have been in one before. */
export const maySent = (key) => !unsent?.delete(key);

/** A random UUID. Pages that were not fetched over TLS have no crypto.randomUUID. */
export const randomUUID = () =>
  "10000000-1000-4000-8000-100000000000".replace(/[018]/g, (c) =>
    (c ^ (crypto.getRandomValues(new Uint8Array(1))[0] & (15 >> (c / 4)))).toString(16),
  );

/** The key that a caller gives, as text or with its age; undefined if none. */
export function keyOf(given) {
  if (given == null) return undefined;
  const { value = given, made = Date.now() } = given;
  encode(value);
  if (isNaN(made)) invalid();
  return { value, made };
}

/**
 * An sf-string (RFC 9651, section 3.3.3) of 1 to 255 characters, with parameters behind it or none. JSON writes a text
 * in the same way.
 */
const quoted = /^"([ !#-[\]-~]|\\["\\]){1,255}"(?= *(;|$))/;

/** The header's text for a key, quoted or as it is. An error never repeats the key. */
export function encode(key, bare) {
  const text = JSON.stringify(key);
  if (!quoted.test(text) || (bare && /[ "\\,;]/.test(key))) invalid();
  return bare ? key : text;
}

/** The key in a header's text, in either form. The parameters behind a closing quote are left to the server. */
export function decode(text) {
  const found = quoted.exec(text);
  return found ? JSON.parse(found[0]) : encode(text, true);
}

/** Reads the key in a header, and puts one there. What the caller has put there is sent as it stands. */
export function inHeader(body, headers, { header, bare }) {
  const text = headers.get(header);
  return {
    value: text && decode(text),
    put(value) {
      headers.set(header, text ?? encode(value, bare));
      return body;
    },
  };
}
