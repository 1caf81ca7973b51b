// Package chaos proves by killing: it runs what semel protects as processes of their own, kills them with SIGKILL at
// named points and at random microseconds while clients ask and ask again, restarts them on the same files, and lets
// package history judge by the effects themselves, never by semel's records.
//
// A run has a cast of processes: fronts, which share one store (gateways, or services with the library inside), and
// behind gateways a service. Each is the running program itself, started again with its part in the environment; see
// [Act]. The reaper kills by a schedule that comes from the seed. Then all is left alive, every operation is asked for
// once more, and judged.
package chaos
