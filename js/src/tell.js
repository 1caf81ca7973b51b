/** Calls a hook. What it throws, at once or later, is its own affair: a payment does not fail by its log. */
export function tell(hook, what) {
  try {
    Promise.resolve(hook?.(what)).catch((error) => console.error(error));
  } catch (error) {
    console.error(error);
  }
}
