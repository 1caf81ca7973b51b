const fail = (got, want, text) => {
  throw new Error(`${text ?? ""} got ${got}, want ${want}`);
};

/** What the tests use of Node.js's assert. */
export default {
  ok: (value, text) => value || fail(value, "something", text),
  equal: (got, want, text) => Object.is(got, want) || fail(got, want, text),
  deepEqual: (got, want, text) => JSON.stringify(got) === JSON.stringify(want) || fail(JSON.stringify(got), JSON.stringify(want), text),
  match: (got, want, text) => want.test(got) || fail(got, want, text),
  ifError: (error) => error === undefined || fail(error, "no error"),
  throws(f, want, text) {
    try {
      f();
    } catch (error) {
      for (const [name, value] of Object.entries(want)) if (error[name] !== value) fail(error, value, text);
      return;
    }
    fail("no error", want.code, text);
  },
};
