import { prepare } from "./call.js";
import { digestOf } from "./digest.js";
import { parseObject } from "./document.js";
import { IdempotencyError, invalid } from "./errors.js";
import { replayed, responseOf } from "./exchange.js";
import { fill } from "./fill.js";
import { encode, keyOf, newKey } from "./key.js";
import { keyStore } from "./keystore.js";
import { ifUnlocked, locked } from "./lock.js";
import { untilOnline } from "./online.js";
import { isSafe } from "./options.js";
import { requestOf } from "./request.js";

const known = {
  storage: [undefined, (v) => v == null || (v.getItem && v.setItem && v.removeItem)],
  storagePrefix: ["semel:"],
  scope: [undefined, (v) => v === undefined || isName(v)],
  lock: [true],
  waitOnline: [true],
  onWarning: [({ message, error = "" }) => console.warn(`idempotent calls: ${message}`, error)],
};

const isName = (v) => typeof v === "string" && v !== "";

/**
 * Returns a client that has operations too: things that somebody wants, each under a name of the caller's. Throws a
 * TypeError that says what is wrong with the options.
 */
export function operations(client, given = {}) {
  const { options: plain } = client;
  if (!plain?.send) throw new TypeError("operations are of a client");
  const own = fill(known, given);
  const options = own.waitOnline ? { ...plain, waitOnline: untilOnline } : plain;
  const keys = keyStore(own);
  const underWay = new Map(); // calls and their answers, by operation

  function operation(name, { key: derived, scope = own.scope } = {}) {
    if (!isName(name)) throw new TypeError("an operation needs a name");
    if (scope === undefined && !globalThis.window) throw new TypeError("an operation needs a scope outside of a page");
    keyOf(derived);
    // What stands for it in the storage.
    const item = scope === undefined ? name : `${encodeURIComponent(scope)}/${name}`;

    function kept() {
      const { value, made, ended } = keys.read(item) ?? {};
      return value === undefined || ended ? undefined : { value, made };
    }

    /**
     * The key is kept until there is a definite answer, so that a reload sends the same one, and while a call is under
     * way, in this tab or another, a second one is not made.
     */
    async function fetch(input, init) {
      const asked = Date.now();
      const request = requestOf(input, init);
      for (;;) {
        const other = underWay.get(item);
        const reply = await (other ? join(other, request) : begin(request, asked));
        if (reply) return responseOf(reply);
      }
    }

    function begin(request, asked) {
      if (request.given !== undefined) throw new TypeError("the operation has its own key");
      if (isSafe(request.method)) throw new TypeError("the operation needs an unsafe method");
      const call = Object.assign(prepare(request, options), { operation: name });
      const answer = call.bounded((limit) => inTurn(call, limit, asked)).finally(() => underWay.delete(item));
      underWay.set(item, { call, answer });
      return answer;
    }

    /** Makes the call when no other tab makes one of this operation. */
    async function inTurn(call, limit, asked) {
      if (!own.lock) return run(call, limit, asked, false);
      const lock = own.storagePrefix + item;
      try {
        return await locked(lock, limit, (held) => run(call, limit, asked, held));
      } finally {
        await ifUnlocked(lock, () => {
          const last = keys.read(item);
          if (last?.ended) keys.remove(item, last);
        });
      }
    }

    async function run(call, limit, asked, held) {
      const digest = await digestOf(call);
      let last = keys.read(item);
      if (last?.ended < asked) last = undefined; // it had its answer before this was asked for: another wish
      const given = keyOf(derived);
      if (last?.digest && last.digest !== digest) reused(call);
      if (given && last && last.value !== given.value)
        invalid("the operation has another key, which has no answer yet");
      const { value, made } = last ?? given ?? newKey();
      const key = { value, made, digest };
      const reply = await call.run(limit, { value, made }, last !== undefined, () => last || keys.keep(item, key));
      if (isDefinite(reply) && keys.read(item)?.value === value) {
        // Who has waited for the lock meanwhile asked for the same thing, and sends the same key: the answer is given
        // again.
        if (held) keys.keep(item, { ...key, ended: Date.now() });
        else keys.remove(item, key);
      }
      return reply;
    }

    async function status(init) {
      const { polling, header, bare } = options;
      if (!polling.statusURL) throw new TypeError("polling has no statusURL");
      const key = kept() ?? keyOf(derived);
      if (!key) return undefined;
      const headers = new Headers(init?.headers);
      headers.set(header, encode(key.value, bare));
      const asked = client.fetch(polling.statusURL, {
        redirect: "error",
        cache: "no-store",
        ...init,
        method: "GET",
        headers,
      });
      const answer = await asked.catch((error) => {
        if (error.code !== "IDEMPOTENCY_OPERATION_NOT_FOUND") throw error;
      });
      return answer?.ok ? parseObject(await answer.text()) : undefined;
    }

    function forget() {
      const key = kept();
      if (key) keys.remove(item, key);
    }

    return {
      ...{ name, fetch, status, forget },
      get key() {
        return kept();
      },
    };
  }

  return { ...client, operation };
}

/**
 * Waits for the answer of a call that somebody else has made, for as long as a request allows. Returns nothing if
 * whoever made it has given it up: that is not the wish of those who joined.
 */
async function join({ call, answer }, request) {
  try {
    return await call.bounded(async () => {
      if ((await digestOf(request)) !== (await digestOf(call))) reused(call);
      return answer;
    }, request);
  } catch (error) {
    if (request.signal?.aborted || !call.signal?.aborted || error !== call.signal.reason) throw error;
    return undefined;
  }
}

function reused({ attempts, key }) {
  const detail = "the operation has another request, which has no answer yet";
  throw new IdempotencyError({ code: "IDEMPOTENCY_KEY_REUSED", attempts, key, detail });
}

/**
 * Whether an answer says what became of the operation: not a 202 that was preferred to waiting (RFC 7240), and not that
 * it has failed and is not kept, since another run finds the steps that have succeeded under the same key.
 */
function isDefinite({ response, nothingKept }) {
  const goesOn = response.status === 202 && /respond-async/i.test(response.headers.get("Preference-Applied"));
  return !nothingKept && (replayed(response) || !goesOn);
}
