package broken

import (
	"fmt"
	"slices"
	"strings"
)

// None is the name of no bug.
const None = "none"

// A Bug is one thing that a layer does wrong.
type Bug struct {
	Name   string
	What   string // it does, for people who use it
	Caught string // the name of the check of "semel-verify" that finds it; "load" for a load
}

// Bugs returns all bugs.
func Bugs() []Bug {
	return []Bug{
		{"forget", "stores no answer, and frees the key once it is sent", "repeat"},
		{"short-memory", "forgets answers after 4.5 s", "repeat-later"},
		{"no-claim", "tells nobody that it runs: all that come meanwhile run", "concurrent"},
		{"no-second-look", "lets a quick repeat wait, and run without another look", "twice"},
		{"weak-fingerprint", "compares bodies by their length", "mismatch-body"},
		{"loose-types", "takes a number and its text for the same", "mismatch-type"},
		{"no-query", "gives a key's answer to any query", "mismatch-query"},
		{"no-path", "gives a key's answer on any path", "mismatch-path"},
		{"late-fingerprint", "compares bodies only once the first request has ended", "mismatch-running"},
		{"malformed-as-none", "takes a key that it can't read for none, and runs", "key-malformed"},
		{"fold-case", "takes keys that differ in case for one", "key-case"},
		{"truncate-key", "cuts keys to 64 bytes", "key-prefix"},
		{"body-as-key", "takes a body of the last minute for a repeat", "two-keys"},
		{"mix-tenants", "does not look at the account", "tenants"},
		{"status-200", "replays what was created as 200", "fidelity"},
		{"lost-location", "replays an answer without its Location", "fidelity"},
		{"truncate", "stores the first 64 KiB of an answer", "large"},
		{"empty-body", "replays an empty answer as 200 with {}", "empty"},
		{"text-only", "stores bodies as text", "binary"},
		{"cut-stream", "stores the first event of a stream", "stream"},
		{"free-on-decline", "frees the key after a 4xx of the business", "declined"},
		{"free-on-error", "frees the key after a 500, though there is an effect", "failing"},
		{"keep-429", "replays a 429 for ever", "limited"},
		{"resend", "asks again where the service broke off", "dropped"},
		{"cancel", "frees the key of what runs when its client hangs up", "disconnect"},
		{"free-on-partial-send", "frees the key if sending the answer breaks off", "answer-lost"},
		{"no-heartbeat", "does not renew the lease while the client waits", "slow"},
		{"store-after-send", "stores the answer 300 ms after it was sent", "crash-after-answer"},
		{"mark-before-done", "marks an operation done before it runs", "crash-before-effect"},
		{"free-on-restart", "frees the keys of what ran when the process died", "crash-after-effect"},
		{"stuck", "holds what ran when the process died as running, for ever", "crash-before-effect"},
		{"no-fence", "lets an owner that slept through its lease overwrite", "pause"},
		{"evict", "remembers the newest 50 keys", "load"},
		{"retry-after", "does not say when to come again", "retry-after"},
		{"plain-errors", "refuses in plain text", "problem-body"},
		{"leaky-errors", "shows the stored answer when it refuses another request", "problem-body"},
		{"no-marker", "does not mark replays", "marker"},
		{"replays-cookie", "replays Set-Cookie", "replay-headers"},
	}
}

// Find returns a bug by its name, which may be [None].
func Find(name string) (Bug, error) {
	if name == None {
		return Bug{Name: None, What: "is right"}, nil
	}
	all := Bugs()
	if i := slices.IndexFunc(all, func(b Bug) bool { return b.Name == name }); i >= 0 {
		return all[i], nil
	}
	names := []string{None}
	for _, b := range all {
		names = append(names, b.Name)
	}
	return Bug{}, fmt.Errorf("there is no bug %q; there are %s", name, strings.Join(names, ", "))
}
