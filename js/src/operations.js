import { insides } from "./client.js";
import { digestOf } from "./digest.js";
import { parseObject } from "./document.js";
import { IdempotencyError, invalid } from "./errors.js";
import { responseOf } from "./exchange.js";
import { encode, keyOf, newKey } from "./key.js";
import { keyStore } from "./keystore.js";
import { limitOf, unlessAborted } from "./limit.js";
import { ifUnlocked, locked } from "./lock.js";
import { fill, isBoolean, isFunction, isSafe } from "./options.js";
import { requestOf } from "./request.js";

const storing = ["getItem", "setItem", "removeItem"];

const known = {
  storage: [(v) => v === null || storing.every((name) => isFunction(v?.[name]))],
  storagePrefix: [(v) => typeof v === "string", "semel:"],
  scope: [isName],
  lock: [isBoolean, true],
  onWarning: [isFunction, ({ message, error = "" }) => console.warn(`idempotent calls: ${message}`, error)],
};

function isName(v) {
  return typeof v === "string" && v !== "";
}

/**
 * Returns a client that has operations too: things that somebody wants, each under a name of the caller's. Throws a TypeError
 * that says what is wrong with the options.
 */
export function operations(client, given = {}) {
  const { options, prepare } = insides.get(client);
  const own = fill(known, given);
  const keys = keyStore(own);
  const underWay = new Map(); // calls and their answers, by operation

  function operation(name, { key: derived, scope = own.scope } = {}) {
    if (!isName(name)) throw new TypeError("an operation needs a name");
    if (scope === undefined && !globalThis.window) {
      throw new TypeError("an operation needs a scope outside of a page");
    }
    keyOf(derived);
    const item = scope === undefined ? name : `${encodeURIComponent(scope)}/${name}`; // what stands for it in the storage

    function kept() {
      const { value, made, ended } = keys.read(item) ?? {};
      return value === undefined || ended ? undefined : { value, made };
    }

    /**
     * The key is kept until there is a definite answer, so that a reload sends the same one, and while a call is under way, in
     * this tab or another, a second one is not made.
     */
    async function fetch(input, init) {
      const asked = Date.now();
      const request = requestOf(input, init);
      for (;;) {
        const other = underWay.get(item);
        const reply = await (other ? join(other, request) : begin(request, asked));
        if (reply) return responseOf(reply, reply.idempotent);
      }
    }

    function begin(request, asked) {
      if (request.key !== undefined) throw new TypeError("the operation has its own key");
      if (isSafe(request.method)) throw new TypeError("the operation needs an unsafe method");
      const call = prepare(request, name);
      const answer = inTurn(call, asked).finally(() => {
        call.close();
        underWay.delete(item);
      });
      underWay.set(item, { call, answer });
      return answer;
    }

    /** Makes the call when no other tab makes one of this operation. */
    async function inTurn(call, asked) {
      if (!own.lock) return run(call, asked, false);
      const lock = own.storagePrefix + item;
      try {
        return await locked(lock, call.signal, (held) => run(call, asked, held));
      } catch (error) {
        throw error === call.signal.reason ? endedBy(error, call.request.signal, call) : error;
      } finally {
        await ifUnlocked(lock, () => {
          const last = keys.read(item);
          if (last?.ended) keys.remove(item, last);
        });
      }
    }

    async function run(call, asked, held) {
      const digest = await digestOf(call.request);
      let last = keys.read(item);
      if (last?.ended < asked) last = undefined; // it had its answer before this was asked for: another wish
      const given = keyOf(derived);
      if (last?.digest && last.digest !== digest) reused(call);
      if (given && last && last.value !== given.value) invalid("the operation has another key, which has no answer yet");
      const { value, made } = last ?? given ?? newKey();
      await call.use({ value, made }, last !== undefined);
      const key = { value, made, digest };
      if (!last) keys.keep(item, key);
      const reply = await call.run();
      if (isDefinite(reply) && keys.read(item)?.value === value) {
        // Who has waited for the lock meanwhile asked for the same thing, and sends the same key: the answer is given again.
        if (held) keys.keep(item, { ...key, ended: Date.now() });
        else keys.remove(item, key);
      }
      return reply;
    }

    async function status(init) {
      const { polling, header, bare } = options;
      if (!polling?.statusURL) throw new TypeError("polling has no statusURL");
      const key = kept() ?? keyOf(derived);
      if (!key) return undefined;
      const headers = new Headers(init?.headers);
      headers.set(header, encode(key.value, bare));
      const asked = client.fetch(polling.statusURL, { redirect: "error", cache: "no-store", ...init, method: "GET", headers });
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
 * Waits for the answer of a call that somebody else has made, for as long as a request allows. Returns nothing if whoever made
 * it has given it up: that is not the wish of those who joined.
 */
async function join({ call, answer }, request) {
  const { signal, close } = limitOf(request);
  const other = call.request;
  try {
    const [mine, first] = await Promise.all([digestOf(request), digestOf(other)]);
    if (mine !== first) reused(call);
    return await unlessAborted(answer, signal);
  } catch (error) {
    if (signal.aborted && error === signal.reason) throw endedBy(error, request.signal, call);
    if (other.signal?.aborted && error === other.signal.reason) return undefined;
    throw error;
  } finally {
    close();
  }
}

function reused({ attempts, key }) {
  const detail = "the operation has another request, which has no answer yet";
  throw new IdempotencyError({ code: "IDEMPOTENCY_KEY_REUSED", attempts, key, detail });
}

/** The error of a wait that a signal has ended: the caller's own reason, or that its time is over. */
function endedBy(cause, signal, { attempts, key }) {
  if (signal?.aborted && cause === signal.reason) return cause;
  return new IdempotencyError({ reason: "deadline", attempts, key, cause });
}

/**
 * Whether an answer says what became of the operation: not a 202 that was preferred to waiting (RFC 7240), and not that it has
 * failed and is not kept, since another run finds the steps that have succeeded under the same key.
 */
function isDefinite({ response: { status, headers }, idempotent, nothingKept }) {
  const goesOn = status === 202 && /respond-async/i.test(headers.get("Preference-Applied") ?? "");
  return !nothingKept && (idempotent.replayed || !goesOn);
}
