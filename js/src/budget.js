const token = 1_000_000;

/** The repeats that are paid for, in millionths, so that ten tenths are one. */
export function budgetOf({ off, share = 0.1, burst = 10 }) {
  const most = off ? Infinity : burst * token;
  let tokens = most;
  return {
    /** Is called once a call. */
    deposit() {
      tokens = Math.min(most, tokens + Math.round(share * token));
    },
    /** Pays for a repeat, and reports whether it could. */
    withdraw() {
      const paid = tokens >= token;
      if (paid) tokens -= token;
      return paid;
    },
  };
}
