// Who pays. A demonstration gives a session to anybody (see dev.go); elsewhere the visitor brings a token.

const kept = "shop:token";

export const session = { headers: undefined, dev: false };

/** Finds a session; false if the visitor has to sign in. */
export async function open() {
  const answer = await fetch("/dev/session").catch(() => undefined);
  if (answer?.ok) {
    session.headers = (await answer.json()).headers;
    session.dev = true;
    return true;
  }
  const token = sessionStorage.getItem(kept);
  if (token) session.headers = { Authorization: `Bearer ${token}` };
  return Boolean(token);
}

export function signIn(token) {
  sessionStorage.setItem(kept, token);
  session.headers = { Authorization: `Bearer ${token}` };
}

export function signOut() {
  sessionStorage.removeItem(kept);
  session.headers = undefined;
}
