/** Calls a hook. What it throws, at once or later, is its own affair: a payment does not fail by its log. */
export const tell = (hook, what) => Promise.resolve(what).then(hook).catch(console.error);
