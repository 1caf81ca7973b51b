const assert = require("node:assert/strict");
const { createClient, IdempotencyError, stripe } = require("@semelhq/client");

const sent = [];
const fetch = async (url, init) => {
  sent.push(init.headers.get("Idempotency-Key"));
  if (sent.length === 1) throw new TypeError("lost");
  return new Response("{}", { status: 201 });
};
createClient({ fetch, dialect: stripe(), random: () => 0 })
  .fetch("https://api.example/charges", { method: "POST" })
  .then((answer) => {
    assert.equal(answer.status, 201);
    assert.equal(sent.length, 2);
    assert.equal(sent[0], sent[1]);
    assert.equal(typeof IdempotencyError, "function");
    console.log("sent once");
  });
