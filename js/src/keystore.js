import { keyOf } from "./key.js";
import { tell } from "./tell.js";

/**
 * Keeps the keys of operations that have no definite answer yet, by the operations' names, each with the digest of its request.
 * What can't be stored, because storage is full, forbidden or not there, is kept in memory, and told. storage null means memory,
 * undefined that of all tabs where they can lock it, else the tab's own; without a window, memory.
 */
export function keyStore({ storage, storagePrefix, lock, onWarning }) {
  const memory = new Map(); // goes before the storage; null: forgotten, though the storage could not be told

  /** Calls f with the storage, undefined if memory is wanted, and an operation's name there. Tells if that fails. */
  function access(operation, f) {
    try {
      if (storage === null || !(storage || globalThis.window)) return f();
      // A page may forbid even to look at it.
      const opened =
        storage ?? (lock && globalThis.navigator?.locks ? globalThis.localStorage : globalThis.sessionStorage);
      if (!opened) throw new Error("no storage");
      return f(opened, storagePrefix + operation);
    } catch (error) {
      tell(onWarning, { message: "the storage fails: the key does not survive a reload", operation, error });
      return undefined;
    }
  }

  /** The key that is kept for an operation, undefined if there is none. */
  function read(operation) {
    if (memory.has(operation)) return memory.get(operation) ?? undefined;
    const text = access(operation, (opened, name) => opened?.getItem(name));
    if (text == null) return undefined;
    if (text.then) {
      Promise.resolve(text).catch(() => {});
      throw new TypeError("the storage answers with a promise");
    }
    try {
      const { value, made, digest, ended } = JSON.parse(text);
      return { ...keyOf({ value, made: made ?? NaN }), digest, ended };
    } catch (error) {
      tell(onWarning, { message: "what is stored is not a key", operation, error });
      return undefined;
    }
  }

  /** Keeps the key of an operation. */
  function keep(operation, key) {
    memory.set(operation, key);
    access(operation, (opened, name) => {
      opened?.setItem(name, JSON.stringify(key));
      if (opened) memory.delete(operation);
    });
  }

  /** Forgets the key of an operation, if it is still this one. */
  function remove(operation, key) {
    if (read(operation)?.value !== key.value) return;
    memory.set(operation, null);
    access(operation, (opened, name) => {
      opened?.removeItem(name);
      memory.delete(operation);
    });
  }

  return { read, keep, remove };
}
