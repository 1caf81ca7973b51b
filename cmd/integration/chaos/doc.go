// Package chaos proves by killing: it runs what semel protects as processes of their own, kills them with SIGKILL at
// named points and at random microseconds while clients ask and ask again, restarts them on the same files, hurts the
// servers and fills the disk of their stores, and lets package history judge by the effects themselves, never by
// semel's records.
//
// A run has a cast of processes: fronts, which share one store (gateways, or services with the library inside), and
// behind gateways a service. Each is the running program itself, started again with its part in the environment; see
// [Act]. The reaper kills by a schedule that comes from the seed. Where the store is a server, each front reaches it
// through a proxy of its own, and a storm kills, pauses, cuts off, slows down and empties servers, also by a schedule
// of the seed. Where it is an SQLite file, that is on a disk of the run, which the storm fills; see [Apart]. Then all
// is healed and left alive, every operation is asked for once more, and judged.
//
// The seed decides which operations each client begins, in which order, and what it does for them; the rounds of kills
// that follow once each point was visited; and the faults. The machine decides how many of them there are, and what
// meets what; a coin, which run of a failing operation fails.
//
// What a kill or a fault allows is a run that is repeated under Rerun, or an outcome that stays unknown under Hold;
// what a full disk allows is an answer that can't be given again, too. The judge wants each explained by a kill or a
// fault that has hit its front at that time. Nothing explains a second effect where one was promised, an answer that is
// not true, or a key that is stuck.
package chaos
