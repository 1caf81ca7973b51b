/** One logical call's key. Keep it where it survives, before the call, until the call has a definite answer. */
export interface Key {
  /** 1 to 255 visible ASCII characters, or spaces; in the bare form without space, quote, backslash, comma and semicolon. */
  readonly value: string;
  /** When it was made, in milliseconds since 1970: the time from which maxAge counts. Defaults to now. */
  readonly made?: number;
}

/** Makes a key: a random UUID (version 4, RFC 9562), made now. */
export function newKey(): Required<Key>;

/** A law of delays: how many milliseconds to wait before the retry of a number, from 0. random is in [0, 1). */
export type Backoff = (retry: number, random: number) => number;

/** Spreads the clients over the whole delay: random·min(limit, base·2^retry); both in milliseconds. */
export function fullJitter(base: number, limit: number): Backoff;

/** What keys are kept in, such as sessionStorage or localStorage. It answers at once: promises are refused. */
export interface KeyStorage {
  getItem(name: string): string | null;
  setItem(name: string, value: string): void;
  removeItem(name: string): void;
}

export interface BudgetOptions {
  /** Removes the bound. */
  off?: boolean;
  /** How many repeats a call pays for, at most 1. Defaults to 0.1. */
  share?: number;
  /** How many repeats are paid for at the start, and at most. Defaults to 10. */
  burst?: number;
}

/** What budget returns, for the client's options. Each client has its own. */
export type Budget = () => (repeat?: boolean) => unknown;

/**
 * The bound of all repeats of a client to a share of its calls: each call adds share, each repeat takes 1. Throws a
 * TypeError that says what is wrong with its options.
 */
export function budget(options?: BudgetOptions): Budget;

/** Options of a client. All times are in milliseconds. */
export interface ClientOptions {
  /** Sends a request. Defaults to the platform's. */
  fetch?: (url: string, init: RequestInit) => Promise<Response>;
  /** What the server says of keys, such as stripe(). Other options go before its own. Defaults to the rules for every server. */
  dialect?: Dialect;
  /** Carries the key. Defaults to Idempotency-Key. */
  header?: string;
  /** Sends keys as they are, not as an sf-string (RFC 9651, section 3.3.3). Defaults to false. */
  bare?: boolean;
  /**
   * Says what an answer to a request with a key means, where the rules for every server don't know: undefined leaves it to them.
   * sent: an attempt under the key may have arrived before this one. A guard's own refusals (Idempotency-Code) are not asked about.
   */
  classify?: (response: Response, sent: boolean) => Verdict | undefined | Promise<Verdict | undefined>;
  /**
   * Carries an id that is the same in all attempts: the request's own, or a new one. null: none is sent. Defaults to
   * X-Correlation-Id on the page's own origin, and on a server; elsewhere to none, since each header needs to be allowed there.
   */
  correlationHeader?: string | null;
  /** The methods whose requests get a key; those of other unsafe ones may bring one. Defaults to POST and PATCH. */
  methods?: string[];
  /** Makes the key of a request that brings none; "" leaves it without one, and so without repeats. Defaults to a random UUID. */
  keyFor?: (url: URL, init: RequestInit) => string;
  /** How often a request is sent, at most; to wait for an operation that runs does not count. Defaults to 4. */
  maxAttempts?: number;
  /** How long after its key was made a request may be sent: the time for which the server remembers. Defaults to 24 h. */
  maxAge?: number;
  /** The law of the delays. Defaults to fullJitter(100, 30000). */
  backoff?: Backoff;
  /** A number in [0, 1), for backoff. Defaults to Math.random. */
  random?: () => number;
  /** The longest delay that a server may ask for; more ends the call. Defaults to 1 min. */
  maxRetryAfter?: number;
  /** Bounds the repeats, see budget. Defaults to a tenth of the calls, of which ten are paid for at the start. */
  budget?: Budget;
  /** How long one attempt may take, to the end of its answer; 0 is no limit. Defaults to 30 s. */
  attemptTimeout?: number;
  /**
   * Is waited for before each attempt. It returns, or promises, whether a network is known; an attempt that is lost without one
   * costs nothing. untilOnline is one. Defaults to none, but see operations.
   */
  waitOnline?: (signal: AbortSignal) => boolean | Promise<boolean>;
  /** Asks about operations in place of sending their requests again, see polling. Defaults to sending them again. */
  polling?: Polling;
  /**
   * The other origins, such as "https://eu.api.example", to which key and body go along when a redirect (307, 308) leads there.
   * Defaults to none. In a page this holds for requests to its own origin; beyond that the platform decides, by CORS.
   */
  crossOrigin?: string[];
  /** Tells of each attempt, see attempts. Defaults to telling nobody. */
  attempts?: Attempts;
}

/** What attempts returns, for the client's options. What it holds is the client's own. */
export interface Attempts {
  readonly tell: unknown;
}

/** Tells f of each attempt of a client's calls, without its key, just after that has ended. */
export function attempts(f: (attempt: Attempt) => void): Attempts;

/**
 * Waits while navigator.onLine is false, instead of spending attempts, and looks again each second. Some browsers say so though
 * they have a network: every 30 s the request is sent all the same, and costs no attempt if it is lost. For the client's option
 * waitOnline.
 */
export function untilOnline(signal: AbortSignal): Promise<boolean>;

/** When to ask about operations. */
export interface PollingOptions {
  /** Asks for the operation that a 202 names in Location, so often, until it has ended. Defaults to 0: the 202 is the answer. */
  pollEvery?: number;
  /**
   * Is asked with GET and the same key after an answer was lost. What it tells of the operation, by a member "state", is
   * the answer; an operation that runs is asked about again. The request is sent again if the operation has failed and nothing is
   * kept of it (state failed, and retryable true), or no state is told. Another origin than the request's is not asked. Defaults to
   * sending the request again.
   */
  statusURL?: string | URL;
}

/** What polling returns, for the client's options. What it holds is the client's own. */
export interface Polling {
  readonly ask: unknown;
}

/**
 * Asks about operations in place of sending their requests again: that of a 202, until it has ended, and that of a lost answer.
 * Throws a TypeError that says what is wrong with the options.
 */
export function polling(options?: PollingOptions): Polling;

/**
 * What an answer means: the operation's own answer; try again; the operation runs, and is waited for; the key is another
 * request's; or it leaves open what became of the operation.
 */
export type Verdict = "answer" | "retry" | "in-progress" | "reused" | "unknown";

/** What a vendor's API, or a standard, says of keys and of the answers to them. */
export interface Dialect {
  /** Carries the key. */
  header?: string;
  /** Where the body holds the key, in place of a header: what inBody returns. */
  field?: BodyField;
  bare?: boolean;
  /** How long the server remembers a key at least, in milliseconds. */
  maxAge?: number;
  /** As that of the options, which goes first. */
  classify?: ClientOptions["classify"];
}

/** Reads the key in a body, and puts one there. */
export type BodyField = (body: unknown) => Promise<{ value: unknown; put(key: string): string }>;

/** Has the key in a member of the body, which has to be an object of JSON. */
export function inBody(name: string): BodyField;

/** How Stripe wants keys, and answers to them. */
export function stripe(): Dialect;

/** How Square does: the key is in the body. */
export function square(): Dialect;

/** How PayPal does. Keys are taken for 3 h old at most. */
export function paypal(): Dialect;

/** How Adyen does. */
export function adyen(): Dialect;

/** How servers do that follow draft-ietf-httpapi-idempotency-key-header-07: any 409 says that the operation runs. */
export function draft07(): Dialect;

/** What one call adds to the init of fetch. Its body must not be a stream if it has a key. */
export interface CallInit extends RequestInit {
  /** How long all of the call may take, in milliseconds. Defaults to 0, no limit. */
  timeout?: number;
}

export interface KeyedCallInit extends CallInit {
  /** The key that the caller has kept, or derived. */
  key?: string | Key;
}

/** A problem in an answer's body (RFC 9457). */
export interface Problem {
  type?: string;
  title?: string;
  status?: number;
  detail?: string;
  code?: string;
  retryable?: boolean;
  [extension: string]: unknown;
}

/** The operation's own answer, whatever its status, read to its end. */
export interface Answer extends Response {
  readonly idempotent: {
    /** The call's key, undefined if it has none. */
    readonly key?: Required<Key>;
    /** How often the request was sent. */
    readonly attempts: number;
    /** Marked with Idempotent-Replayed: it was given before. */
    readonly replayed: boolean;
    /** Of the operation, where that was asked about instead: the answer is what was told of it. */
    readonly state?: string;
    readonly problem?: Problem;
  };
}

export interface Attempt {
  /** The request itself, a question to statusURL, or one to the Location of a 202. */
  readonly kind: "request" | "status" | "poll";
  /** In the call, from 1. */
  readonly number: number;
  readonly operation?: string;
  readonly correlation?: string;
  readonly method: string;
  readonly host: string;
  /** Undefined if there was no answer. */
  readonly status?: number;
  /** Why there was none. */
  readonly error?: unknown;
  readonly took: number;
  /** There is another one, after delay. */
  readonly again: boolean;
  readonly delay?: number;
  /** Why there is none although it was worth it. */
  readonly reason?: Reason;
}

export interface Warning {
  readonly message: string;
  readonly operation: string;
  readonly error?: unknown;
}

/** One thing that somebody wants. */
export interface Operation {
  readonly name: string;
  /**
   * The key that is kept; undefined if there is none, because nothing was sent yet or there was a definite answer. That a 202 has
   * ended in a failure of which nothing is kept is none.
   */
  readonly key: Required<Key> | undefined;
  /**
   * Sends the request under the operation's key, as the client's fetch does. While one is under way, it sends nothing and returns
   * a copy of that one's answer, or its error; signal and timeout end only this wait for it. If whoever made that one aborts it,
   * this one is sent after all. Another request (method, URL, body) than the one that has no answer yet is refused, with
   * the code IDEMPOTENCY_KEY_REUSED, and nothing is sent.
   */
  fetch(input: RequestInfo | URL, init?: CallInit): Promise<Answer>;
  /**
   * Asks polling's statusURL what became of the operation, and sends nothing else. Undefined if there is no key, or nothing is
   * known of it. statusURL may be relative to the page.
   */
  status(init?: CallInit): Promise<Status | undefined>;
  /** Drops the key: the next request is a new wish. For when it is known what became of the last one. */
  forget(): void;
}

/** What an operation's status tells. */
export interface Status {
  state?: string;
  retryable?: boolean;
  [extension: string]: unknown;
}

export interface OperationOptions {
  /** A key that is derived from what the operation is for, such as an order's number. Defaults to one that is made and kept. */
  key?: string | Key;
  /** Whose operation it is. Defaults to that of all. */
  scope?: string;
}

export interface Client {
  /**
   * Makes one logical call: the same request, under one key, until it has a definite answer, or for as long as the options
   * allow. It can stand wherever fetch does. Rejects with the signal's own reason if that ends it, with an IdempotencyError if
   * there is no definite answer, and with a TypeError if the call can't be made at all. A 5xx is definite only if it is marked as
   * kept (Idempotency-Retryable: false) or as a replay (Idempotent-Replayed: true). Once an attempt under the key may have
   * arrived before, so is a 400, 401, 403, 407, 409, 417 or 422 without a code that is known, and an answer to which a redirect
   * has led. That may be of any key which newKey or the client has not just made.
   */
  fetch(input: RequestInfo | URL, init?: KeyedCallInit): Promise<Answer>;
}

/** Options of operations. */
export interface OperationsOptions {
  /**
   * Keeps the keys of operations; null keeps them in memory. Defaults to localStorage where tabs can lock it (lock, and a page
   * with navigator.locks), else to sessionStorage.
   */
  storage?: KeyStorage | null;
  /**
   * Lets no two tabs make a call of the same operation at once, where there is navigator.locks: the second waits, and gets the
   * first one's answer again. Tabs must share the storage. Defaults to true.
   */
  lock?: boolean;
  /**
   * Whose operations these are, such as a user's id: operations of the same name in two scopes are two. Without a window, as on
   * a server, an operation needs one, here or of its own.
   */
  scope?: string;
  /** Is put before an operation's name in the storage. Defaults to "semel:". */
  storagePrefix?: string;
  /** Lets the calls of operations wait for a network with untilOnline. Defaults to true; false leaves it to the client's option. */
  waitOnline?: boolean;
  /** Is told that storage could not be used. Defaults to console.warn. */
  onWarning?: (warning: Warning) => void;
}

/** A client that has operations too. */
export interface OperationsClient extends Client {
  /**
   * The operation of a name. Its key is kept in the storage from before the first request until there is a definite answer. Each
   * wish has a random key, unless the caller derives one, from what is wanted: then a call after the answer, and one in another
   * tab, are the same wish.
   */
  operation(name: string, options?: OperationOptions): Operation;
}

/** Returns a client; throws a TypeError that says all that is wrong with the options. */
export function createClient(options?: ClientOptions): Client;

/**
 * Returns a client whose calls can be operations, under the options and the budget of one that createClient has returned. Throws
 * a TypeError that says what is wrong with the options.
 */
export function operations(client: Client, options?: OperationsOptions): OperationsClient;

/**
 * Why a call was not sent again although that was worth it: maxAttempts; the budget; the call's time is over, or would be before
 * the next attempt; maxAge, since the server may have forgotten the key, and run it again; or the server asks for more patience
 * than maxRetryAfter.
 */
export type Reason = "attempts" | "budget" | "deadline" | "retention" | "retry-after";

/** The codes of the guard's problems, and of the client's own refusal of a body that is a stream: nothing was sent. */
export type Code =
  | "IDEMPOTENCY_KEY_REQUIRED"
  | "IDEMPOTENCY_KEY_INVALID"
  | "IDEMPOTENCY_SCOPE_INVALID"
  | "IDEMPOTENCY_KEY_REUSED"
  | "IDEMPOTENCY_IN_PROGRESS"
  | "IDEMPOTENCY_OUTCOME_PENDING"
  | "IDEMPOTENCY_OUTCOME_UNKNOWN"
  | "IDEMPOTENCY_REPLAY_UNAVAILABLE"
  | "IDEMPOTENCY_NO_ANSWER"
  | "IDEMPOTENCY_KEY_EXPIRED"
  | "IDEMPOTENCY_REPLAY_FORBIDDEN"
  | "IDEMPOTENCY_TOO_MANY_ATTEMPTS"
  | "IDEMPOTENCY_TOO_MANY_KEYS"
  | "IDEMPOTENCY_BODY_TOO_LARGE"
  | "IDEMPOTENCY_DIGEST_MISMATCH"
  | "IDEMPOTENCY_EARLY_DATA"
  | "IDEMPOTENCY_STORE_UNAVAILABLE"
  | "IDEMPOTENCY_REQUEST_UNREADABLE"
  | "IDEMPOTENCY_BODY_CONSUMED"
  | "IDEMPOTENCY_OPERATION_NOT_FOUND"
  | "BODY_NOT_REPEATABLE";

/** The end of a call without the operation's own answer. Its text does not show the key. */
export class IdempotencyError extends Error {
  private constructor();
  /** Which refusal it is, or what the operation's state stands for; undefined if neither. */
  readonly code?: Code;
  /** Why the call was not sent again although that was worth it: the operation may have taken effect. */
  readonly reason?: Reason;
  /** How often the request was sent until then; 0 means that nothing was. */
  readonly attempts: number;
  /** When the server said to come again. */
  readonly retryAt?: Date;
  readonly problem?: Problem;
  /** The call's key; not enumerable, so that logs don't show it. */
  readonly key?: Required<Key>;
  /** The last response that came; not enumerable. */
  readonly response?: Response;
  /** The error of the last attempt, or the reason of the signal that ended the call. */
  readonly cause?: unknown;
}
