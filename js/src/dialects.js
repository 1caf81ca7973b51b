import { parseObject } from "./document.js";
import { encode } from "./key.js";

const inProgress = "in-progress";

/** Reads an answer's object of JSON; an empty one if it is none. */
const read = async (response) => parseObject(await response.text()) ?? {};

/**
 * Has the key in a member of the body, an object of JSON, in place of a header. The rest of the body stays as it is.
 */
export function inBody(name) {
  return async (body) => {
    const text = typeof body === "string" ? body : await new Response(body).text();
    const members = parseObject(text);
    if (!members) throw new TypeError("the body that is to hold the key is no object of JSON");
    const comma = Object.keys(members)[0] === undefined ? "" : ",";
    const { [name]: own } = members;
    return {
      value: own,
      put: (value) =>
        own == null ? text.replace("{", () => `{${JSON.stringify(name)}:${encode(value)}${comma}`) : text,
    };
  };
}

/**
 * How Stripe wants keys, and answers to them: https://docs.stripe.com/api/idempotent_requests. It keeps keys for 24 h
 * at least.
 */
export function stripe() {
  return {
    bare: true,
    async classify(response) {
      const { type, code } = (await read(response)).error ?? {};
      if (code === "idempotency_key_in_use") return inProgress;
      if (type === "idempotency_error") return "reused";
      const again = response.headers.get("Stripe-Should-Retry");
      if (again === "true") return "retry";
      // The key is looked up before the parameters are checked, so that such a refusal can't hide an earlier success.
      if ([400, 402, 404].includes(response.status) && ["card_error", "invalid_request_error"].includes(type))
        return "answer";
      return again === "false" && response.status >= 409 ? "unknown" : undefined;
    },
  };
}

/**
 * How Square wants keys, in the body: https://developer.squareup.com/docs/build-basics/common-api-patterns/idempotency.
 */
export function square() {
  return {
    field: inBody("idempotency_key"),
    bare: true,
    async classify(response) {
      const { code, category } = (await read(response)).errors?.[0] ?? {};
      if (code === "IDEMPOTENCY_KEY_REUSED") return "reused";
      return category === "PAYMENT_METHOD_ERROR" ? "answer" : undefined;
    },
  };
}

/**
 * How PayPal wants keys: https://developer.paypal.com/api/rest/reference/idempotency. Some of its APIs keep keys for 3
 * h only.
 */
export function paypal() {
  return {
    header: "PayPal-Request-Id",
    bare: true,
    maxAge: 3 * 3600 * 1000,
    async classify(response) {
      const issues = JSON.stringify((await read(response)).details ?? "");
      if (issues.includes('"PREVIOUS_REQUEST_IN_PROGRESS"')) return inProgress;
      return issues.includes('"DUPLICATE_REQUEST_ID"') ? "reused" : undefined;
    },
  };
}

/**
 * How Adyen wants keys: https://docs.adyen.com/development-resources/api-idempotency. It keeps them for 7 days at
 * least.
 */
export function adyen() {
  return {
    bare: true,
    async classify(response) {
      const transient = response.headers.get("transient-error") === "true";
      if (`${(await read(response)).errorCode}` === "704") return transient ? inProgress : "unknown";
      return transient ? "retry" : undefined;
    },
  };
}

/** How servers answer that follow draft-ietf-httpapi-idempotency-key-header-07, section 2.7. */
export function draft07() {
  return {
    async classify(response) {
      if (response.status === 409) return inProgress;
      if (response.status !== 422) return undefined;
      const { title, detail } = await read(response);
      return /idempotency-key/i.test(`${title} ${detail}`) ? "reused" : undefined;
    },
  };
}
