import { attempts, budget, createClient, draft07, IdempotencyError, newKey, operations, polling, untilOnline, type Answer, type Dialect, type Verdict } from "@semelhq/client";

const dialect: Dialect = draft07();
const told = attempts(({ number, host, again }) => console.log(number, host, again));
const plain = createClient({ dialect, fetch, attempts: told, budget: budget({ off: true }), waitOnline: untilOnline, polling: polling({ statusURL: "/operations" }), classify: (r, sent): Verdict | undefined => (sent && r.status === 422 ? "unknown" : undefined) });
const client = operations(plain, { storage: null, waitOnline: false });

export const asFetch: typeof fetch = client.fetch;

export async function pay(signal: AbortSignal): Promise<string | undefined> {
  try {
    const answer: Answer = await client.fetch(new Request("https://api.example/"), { key: newKey(), timeout: 1000, signal });
    await client.operation("checkout-42", { key: "order-42", scope: "ada" }).fetch("https://api.example/", { method: "POST" });
    const status = await client.operation("checkout-42").status();
    return answer.idempotent.state ?? status?.state;
  } catch (error) {
    if (error instanceof IdempotencyError && error.code === "IDEMPOTENCY_KEY_REUSED") return error.reason;
    throw error;
  }
}
