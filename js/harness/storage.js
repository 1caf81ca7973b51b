/** A storage of a tab, for as long as the object lives. */
export class MemoryStorage {
  items = new Map();

  getItem(name) {
    return this.items.get(name) ?? null;
  }

  setItem(name, value) {
    this.items.set(name, value);
  }

  removeItem(name) {
    this.items.delete(name);
  }
}

/** A storage that refuses some of its methods, as that of a private window, or a full one, does. */
export class RefusingStorage extends MemoryStorage {
  constructor(...methods) {
    super();
    for (const method of methods) {
      this[method] = () => {
        throw new DOMException(`${method} is refused`, "QuotaExceededError");
      };
    }
  }
}
