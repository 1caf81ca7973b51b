import { createClient, draft07, IdempotencyError, newKey, operations, polling, type Answer, type Dialect, type Verdict } from "@semelhq/client";

const dialect: Dialect = draft07();
const plain = createClient({ dialect, fetch, polling: polling({ statusURL: "/operations" }), classify: (r, sent): Verdict | undefined => (sent && r.status === 422 ? "unknown" : undefined) });
const client = operations(plain, { storage: null });

export const asFetch: typeof fetch = client.fetch;

export async function pay(signal: AbortSignal): Promise<string | undefined> {
  try {
    const answer: Answer = await client.fetch(new Request("https://api.example/"), { key: newKey(), timeout: 1000, signal });
    await client.operation("checkout-42", { key: "order-42", scope: "ada" }).fetch("https://api.example/", { method: "POST" });
    const told = await client.operation("checkout-42").status();
    return answer.idempotent.state ?? told?.state;
  } catch (error) {
    if (error instanceof IdempotencyError && error.code === "IDEMPOTENCY_KEY_REUSED") return error.reason;
    throw error;
  }
}
