import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { test } from "node:test";

import { payment, url } from "../harness/shop.js";
import * as everywhere from "../src/index.js";
import * as page from "../src/page.js";

// What a bundle for pages has: the platform follows redirects there.

/** The redirect that a client for pages asks of the platform, for requests with and without a key. */
async function asked() {
  const modes = [];
  const fetch = (_, init) => (modes.push(init.redirect), new Response("{}", { status: 201 }));
  const client = page.createClient({ fetch });
  await client.fetch(url, payment);
  await client.fetch(url);
  await client.fetch(url, { ...payment, redirect: "manual" });
  return modes;
}

test("R-69: in a page the platform follows redirects", async (t) => {
  Object.defineProperty(globalThis, "location", { configurable: true, value: new URL("https://shop.example/") });
  t.after(() => delete globalThis.location);
  assert.deepEqual(await asked(), [undefined, undefined, "manual"]);
});

test("R-69: where there is no page a bundle for pages lets no key be led elsewhere", async () => {
  assert.deepEqual(await asked(), ["error", undefined, "error"]);
});

test("a bundle for pages has the same names", () => {
  assert.deepEqual(Object.keys(page), Object.keys(everywhere));
});

for (const [what, conditions, file] of [
  ["Node.js", [], "index.js"],
  ["a bundle for pages", ["browser"], "page.js"],
  ["a worker of a hoster, whose bundlers call it a browser", ["workerd", "worker", "browser"], "index.js"],
  ["a function at the edge", ["edge-light", "worker", "browser"], "index.js"],
]) {
  test(`${what} imports ${file}`, () => {
    const script = 'console.log(import.meta.resolve("@semelhq/client"))';
    const flags = conditions.map((name) => `--conditions=${name}`);
    const cwd = new URL("..", import.meta.url);
    const found = execFileSync(process.execPath, [...flags, "--input-type=module", "-e", script], {
      cwd,
      encoding: "utf8",
    });
    assert.equal(found.trim().split("/").at(-1), file);
  });
}
