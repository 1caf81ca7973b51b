import { keyOf } from "./key.js";
import { tell } from "./tell.js";

/**
 * The keys of operations that have no definite answer yet, by the operations' names, each with the digest of its request. What
 * can't be stored, because storage is full, forbidden or not there, is kept in memory, and told.
 */
export class KeyStore {
  #storage;
  #prefix;
  #warn;
  #memory = new Map(); // goes before the storage; null: forgotten, though the storage could not be told

  /** storage null means memory, undefined that of all tabs where they can lock it, else the tab's own; without a window, memory. */
  constructor({ storage, storagePrefix, lock, onWarning }) {
    this.#prefix = storagePrefix;
    this.#warn = (message, operation, error) => tell(onWarning, { message, operation, error });
    if (storage === null || (storage === undefined && globalThis.window === undefined)) return;
    const shared = () => lock && globalThis.navigator?.locks !== undefined;
    // A page may forbid even to look at it.
    this.#storage = () => storage ?? (shared() ? globalThis.localStorage : globalThis.sessionStorage);
  }

  /** The key that is kept for an operation, undefined if there is none. */
  read(operation) {
    if (this.#memory.has(operation)) return this.#memory.get(operation) ?? undefined;
    let text;
    try {
      text = this.#storage?.()?.getItem(this.#prefix + operation);
    } catch (error) {
      this.#warn("the key that may be stored can't be read", operation, error);
      return undefined;
    }
    if (text === null || text === undefined) return undefined;
    if (typeof text.then === "function") {
      Promise.resolve(text).catch(() => {});
      throw new TypeError("idempotent client: want a storage that answers at once, not with a promise");
    }
    const key = parse(text);
    if (!key) this.#warn("what is stored is not a key", operation);
    return key;
  }

  /** Keeps the key of an operation. */
  keep(operation, key) {
    try {
      const storage = this.#storage?.();
      if (this.#storage && !storage) throw new Error("there is no storage");
      storage?.setItem(this.#prefix + operation, JSON.stringify(key));
      if (storage) {
        this.#memory.delete(operation);
        return;
      }
    } catch (error) {
      this.#warn("a key can't be stored and does not survive a reload", operation, error);
    }
    this.#memory.set(operation, key);
  }

  /** Forgets the key of an operation, if it is still this one. */
  remove(operation, key) {
    if (this.read(operation)?.value !== key.value) return;
    this.#memory.delete(operation);
    try {
      this.#storage?.()?.removeItem(this.#prefix + operation);
    } catch (error) {
      this.#memory.set(operation, null);
      this.#warn("the key of an operation that has ended can't be removed", operation, error);
    }
  }
}

function parse(text) {
  try {
    const { value, made, digest, ended } = JSON.parse(text);
    return made === undefined ? undefined : { ...keyOf({ value, made }), digest, ended };
  } catch {
    return undefined;
  }
}
