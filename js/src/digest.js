/**
 * Stands for a request in a number, so that another one under the same name is seen; it protects from mistakes only.
 */
export async function digestOf({ url, method, headers, body }) {
  const text = new TextDecoder("latin1").decode(await new Response(await body).arrayBuffer());
  const boundary = /boundary=(.+)/.exec(headers.get("Content-Type"))?.[1];
  let digest = 0;
  for (const c of `${method} ${url} ${boundary ? text.replaceAll(boundary, "") : text}`) {
    digest = (digest * 65599 + c.charCodeAt(0)) % (2 ** 37 - 25); // a prime; the product stays below 2^53
  }
  return digest;
}
