/** Calls a hook. What it throws, at once or later, is its own affair: a payment does not fail by its log. */
export async function tell(hook, what) {
  try {
    await hook?.(what);
  } catch (error) {
    console.error(error);
  }
}
