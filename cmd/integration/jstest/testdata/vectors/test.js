const tests = [];

/** Keeps a test for run. */
export const test = (name, f) => tests.push({ name, f });

/** Runs the tests one after the other, and returns how many passed and what became of the others. */
export async function run() {
  const failed = [];
  for (const { name, f } of tests) {
    try {
      await f();
    } catch (error) {
      failed.push(`${name}: ${error}`);
    }
  }
  return { passed: tests.length - failed.length, failed };
}
