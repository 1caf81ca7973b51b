/** A fetch that answers what a list says, one entry a request, and keeps what it was asked. */
export class Server {
  requests = [];
  broke = new TypeError("the connection broke");

  constructor(script, { header = "Idempotency-Key" } = {}) {
    this.script = script;
    this.header = header;
    this.fetch = this.fetch.bind(this);
  }

  async fetch(url, init) {
    const request = new Request(url, init);
    this.requests.push({
      at: Date.now(),
      method: request.method,
      url,
      path: new URL(url).pathname,
      key: request.headers.get(this.header),
      headers: request.headers,
      signal: init.signal,
      body: await request.text(),
    });
    const step = this.script[this.requests.length - 1];
    if (!step) throw new Error(`request ${this.requests.length} is not in the script`);
    if (typeof step === "function") return step(init);
    if (step.network) throw this.broke;
    const type = step.problem ? "application/problem+json" : "application/json";
    const headers = new Headers({ "Content-Type": type, ...step.headers });
    let body = JSON.stringify(step.problem ?? step.json ?? {});
    if (step.breaks) {
      const chunks = [new TextEncoder().encode("{")];
      const pull = (c) => (chunks.length > 0 ? c.enqueue(chunks.pop()) : c.error(this.broke));
      body = new ReadableStream({ pull });
    }
    return new Response([204, 205, 304].includes(step.status) ? null : body, { status: step.status, headers });
  }
}
