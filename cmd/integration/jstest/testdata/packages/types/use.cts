import { createClient, draft07, IdempotencyError, newKey, Code, type Answer, type Dialect, type Verdict } from "@semelhq/client";

const dialect: Dialect = draft07();
const client = createClient({ dialect, fetch, classify: (r, sent): Verdict | undefined => (sent && r.status === 422 ? "unknown" : undefined) });

export const asFetch: typeof fetch = client.fetch;

export async function pay(signal: AbortSignal): Promise<string | undefined> {
  try {
    const answer: Answer = await client.fetch(new Request("https://api.example/"), { key: newKey(), timeout: 1000, signal });
    await client.operation("checkout-42", { key: "order-42", scope: "ada" }).fetch("https://api.example/", { method: "POST" });
    const told = await client.operation("checkout-42").status();
    return answer.idempotent.state ?? told?.state;
  } catch (error) {
    if (error instanceof IdempotencyError && error.code === Code.keyReused) return error.reason;
    throw error;
  }
}
