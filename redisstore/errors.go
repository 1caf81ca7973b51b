package redisstore

import (
	"errors"
	"strings"

	"github.com/semelhq/semel/driver"
)

// What a server can refuse. Errors of the store wrap one of them where the cause is known, and the client's error.
var (
	// ErrReadOnly means that the server is a replica: the client follows the wrong one, or a failover is under way.
	ErrReadOnly = errors.New("server is a read-only replica")
	// ErrLoading means that the server has just been started and still reads its data.
	ErrLoading = errors.New("server is loading its data")
	// ErrRedirected means that the key is on another node of a Cluster, and that the client does not go there.
	ErrRedirected = errors.New("key is on another node: the client does not follow the Cluster")
	// ErrClusterDown means that the Cluster does not serve the key's slot, or none.
	ErrClusterDown = errors.New("cluster is down")
	// ErrTryAgain means that the key's slot is being moved to another node, and that some of the record's keys are there
	// already.
	ErrTryAgain = errors.New("slot is being moved")
	// ErrPrimaryDown means that the server is a replica that has lost its primary.
	ErrPrimaryDown = errors.New("replica has no link to its primary")
	// ErrFewReplicas means that fewer replicas follow the server than min-replicas-to-write asks for.
	ErrFewReplicas = errors.New("too few replicas")
	// ErrNotPersisting means that the server refuses writes since it can't save its data.
	ErrNotPersisting = errors.New("server can't save its data")
	// ErrDenied means that the client's user or password is not accepted, or may not run the command or touch the key.
	ErrDenied = errors.New("access is denied")
	// ErrBusy means that a script has been running for too long, and keeps the server from anything else.
	ErrBusy = errors.New("server is busy with a script")
	// ErrMemory means that the server has used the memory that maxmemory allows. It comes with [driver.ErrFull].
	ErrMemory = errors.New("server has used up its memory")
	// ErrEvicts means that the server may drop records to make room: see [Options.AllowEviction].
	ErrEvicts = errors.New("server may evict records")
	// ErrVersion means that the server is older than Redis 6.2.
	ErrVersion = errors.New("server is older than Redis 6.2")
)

// The first words of what Redis replies as an error.
var kinds = map[string]error{
	"NOSCRIPT":    nil,
	"READONLY":    ErrReadOnly,
	"LOADING":     ErrLoading,
	"MOVED":       ErrRedirected,
	"ASK":         ErrRedirected,
	"CLUSTERDOWN": ErrClusterDown,
	"TRYAGAIN":    ErrTryAgain,
	"MASTERDOWN":  ErrPrimaryDown,
	"NOREPLICAS":  ErrFewReplicas,
	"MISCONF":     ErrNotPersisting,
	"NOAUTH":      ErrDenied,
	"NOPERM":      ErrDenied,
	"WRONGPASS":   ErrDenied,
	"BUSY":        ErrBusy,
	"OOM":         ErrMemory,
}

// codeOf returns the code of an error that Redis replied, if it is one of the known, else "".
func codeOf(err error) string {
	for ; err != nil; err = errors.Unwrap(err) {
		text := strings.TrimPrefix(err.Error(), "-")
		if code := firstWord(text); code != "" {
			return code
		}
		text = strings.TrimPrefix(text, "ERR ") // some clients take it away
		switch {
		case strings.Contains(text, "Script attempted to access a non local key"):
			return "TRYAGAIN" // of a record's keys, which are in one slot, some have been moved already
		case strings.HasPrefix(text, "Error running script"):
			// Before 7.0, when a command in a script fails: "… @user_script:9: -OOM command not allowed …".
			_, inner, _ := strings.Cut(text, ": -")
			if code := firstWord(inner); code != "" {
				return code
			}
		case strings.HasPrefix(text, "The user executing the script can't"), strings.HasPrefix(text, "ACL failure in script"):
			return "NOPERM"
		}
	}
	return ""
}

// firstWord returns the word that a text begins with if it is a known code, else "".
func firstWord(text string) string {
	word, _, _ := strings.Cut(text, " ")
	if _, known := kinds[word]; known {
		return word
	}
	return ""
}

// interpretError gives an error of the client the sentinel of its kind. Others stay as they are.
func interpretError(err error) error {
	kind := kinds[codeOf(err)]
	switch {
	case kind == nil || errors.Is(err, kind):
		return err
	case errors.Is(kind, ErrMemory):
		return &failure{[]error{driver.ErrFull, kind, err}}
	}
	return &failure{[]error{kind, err}}
}

// A failure is a client's error with its kinds.
type failure struct{ is []error }

func (f *failure) Error() string {
	var texts []string
	for _, err := range f.is {
		texts = append(texts, err.Error())
	}
	return strings.Join(texts, ": ")
}

func (f *failure) Unwrap() []error { return f.is }
