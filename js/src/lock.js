/**
 * Runs f while no other tab of this origin does so under the same name, if the platform has locks, and tells it whether it has.
 * The lock of a tab that ends is free. What the signal ends is the wait.
 */
export async function locked(name, signal, f) {
  const { locks } = globalThis.navigator ?? {};
  let begun = false;
  const run = (lock) => {
    begun = true;
    return f(lock !== undefined);
  };
  try {
    if (locks) return await locks.request(name, { signal }, run);
  } catch (error) {
    if (begun || signal.aborted) throw error; // else locks are forbidden here
  }
  return run();
}

/** Runs f if nobody has the lock or waits for it. */
export async function ifUnlocked(name, f) {
  const { locks } = globalThis.navigator ?? {};
  await locks?.request(name, { ifAvailable: true }, (lock) => lock && f()).catch(() => {});
}
