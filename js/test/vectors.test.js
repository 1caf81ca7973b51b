import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { test } from "node:test";

import { Clock } from "../harness/clock.js";
import { Server } from "../harness/server.js";
import { fullJitter } from "../src/backoff.js";
import { judge } from "../src/classify.js";
import { readProblem } from "../src/document.js";
import * as semel from "../src/index.js";
import { decode, encode, newKey } from "../src/key.js";
import { retryAfter } from "../src/retryafter.js";

// The vectors that drive the clients in all languages; the README beside them says what they mean.
const vectors = JSON.parse(await readFile(new URL("../../client/testdata/vectors.json", import.meta.url), "utf8"));
const keyInvalid = { name: "IdempotencyError", code: "IDEMPOTENCY_KEY_INVALID" };

test("the vectors are of this version, and no list is empty", () => {
  assert.equal(vectors.version, 1);
  for (const list of ["headers", "keys", "retryAfter", "delays", "classify", "calls"]) assert.ok(vectors[list].length > 0, list);
});

test("R-65: what is sent of a key", () => {
  for (const v of vectors.headers) {
    const key = v.key.repeat(v.times ?? 1);
    if (v.text === null) {
      assert.throws(() => encode(key, v.bare ?? false), keyInvalid, v.name);
      continue;
    }
    const want = v.textTimes ? `"${v.text.slice(1, -1).repeat(v.times)}"` : v.text;
    assert.equal(encode(key, v.bare ?? false), want, v.name);
  }
});

test("R-65: what a caller's header holds", () => {
  const sent = (text) => new Headers({ key: text }).get("key");
  for (const v of vectors.keys) {
    if (v.key === null) assert.throws(() => decode(sent(v.text)), keyInvalid, v.text);
    else assert.equal(decode(sent(v.text)), v.key, v.text);
  }
});

test("R-67: what a response asks to wait", () => {
  for (const v of vectors.retryAfter) {
    const now = v.now ? Date.parse(v.now) : Date.now();
    assert.equal(retryAfter({ status: v.status ?? 429, headers: new Headers(v.headers) }, now), v.ms ?? -1, v.name);
  }
});

test("R-67: the law of delays", () => {
  for (const v of vectors.delays) {
    assert.equal(fullJitter(v.baseMs, v.limitMs)(v.retry, v.random), v.ms, JSON.stringify(v));
  }
});

test("R-66: what is worth another attempt", async () => {
  for (const v of vectors.classify) {
    const headers = new Headers(v.headers);
    if (v.problem) headers.set("Content-Type", "application/problem+json; charset=utf-8");
    const problem = readProblem({ status: v.status, headers }, new TextEncoder().encode(JSON.stringify(v.problem)));
    const told = v.problem !== undefined || (headers.has("Idempotency-Code") && v.status >= 400);
    assert.equal(problem !== undefined, told, JSON.stringify(v));
    const call = { key: !v.unkeyed, maybe: false, headers: new Headers(), options: { dialect: {} } };
    const verdict = await judge({ ...call, response: { status: v.status, headers }, problem });
    assert.equal(["retry", "in-progress"].includes(verdict), v.retry, JSON.stringify(v));
  }
});

// In a page the platform follows redirects.
const redirects = (call) => globalThis.location && call.script.some(({ status }) => status >= 300 && status < 400);

for (const v of vectors.calls.filter((call) => !call.hops && !redirects(call))) {
  for (const random of [0, 1]) {
    test(`call: ${v.name}, random ${random}`, () => play(v, random));
  }
}

async function play(v, random) {
  const o = v.options ?? {};
  const server = new Server(v.script, { header: o.header });
  const client = semel.createClient({
    fetch: server.fetch,
    random: () => random,
    backoff: fullJitter(o.baseMs ?? 100, 30_000),
    budget: semel.budget(o.budget ?? { off: true }),
    maxAge: o.maxAgeMs,
    maxRetryAfter: o.maxRetryAfterMs,
    polling: semel.polling({ pollEvery: o.pollEveryMs, statusURL: o.statusUrl }),
    maxAttempts: o.maxAttempts,
    header: o.header,
    dialect: o.dialect && semel[o.dialect](),
    bare: o.bare,
    methods: o.methods,
    crossOrigin: o.crossOrigin,
  });
  const method = v.method ?? "POST";
  const clock = new Clock().install();
  try {
    const key = v.key === null ? undefined : Object.assign(v.kept ? {} : newKey(), { value: v.key ?? "order-42", made: clock.now - (v.keyAgeMs ?? 0) });
    const body = method === "GET" ? undefined : '{"amount":5}';
    const init = { method, headers: v.headers, body, key, timeout: o.deadlineMs };
    const outcome = await clock.until(client.fetch("https://api.example/payments", init));
    checkOutcome(v.outcome, outcome, server, clock);
  } finally {
    clock.uninstall();
  }
  checkRequests(v, server);
  const at = server.requests.map((r) => r.at);
  assert.deepEqual(at.slice(1).map((t, i) => t - at[i]), v.delaysMs.map((bounds) => bounds[random]));
}

function checkOutcome(want, { value, error }, server, clock) {
  if (want.answer !== undefined) {
    assert.ifError(error);
    assert.equal(value.status, want.answer);
    assert.equal(value.idempotent.replayed, want.replayed ?? false);
    assert.equal(value.idempotent.state, want.state);
    return;
  }
  assert.ok(error instanceof semel.IdempotencyError, `${error?.stack}`);
  assert.equal(error.response?.status ?? null, want.error);
  assert.equal(error.code, want.code);
  assert.equal(error.reason, want.reason);
  assert.equal(error.cause === server.broke, want.network ?? false);
  assert.equal(error.retryAt && error.retryAt - clock.now, want.retryAfterMs);
}

function checkRequests(v, server) {
  assert.equal(server.requests.length, v.script.length, "requests");
  server.requests.forEach((got, i) => {
    const { key, ...want } = v.script[i].request ?? {};
    for (const [name, value] of Object.entries(want)) assert.equal(got[name], value, `request ${i + 1}: ${name}`);
    if (key === "same") assert.ok(got.key, `request ${i + 1} has no key`);
    if (key === "made") assert.match(got.key, /^"[0-9a-f-]{36}"$/);
    else if (key === "same") assert.equal(got.key, i === 0 ? got.key : server.requests[i - 1].key, `request ${i + 1}`);
    else if (key !== undefined) assert.equal(got.key, key, `request ${i + 1}`);
  });
}
