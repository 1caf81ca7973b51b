package redisstore

import (
	"errors"
	"fmt"
	"testing"

	"github.com/semelhq/semel/driver"
)

// Redis tells the kind of an error by its first word, and before 7.0 within a script by that of the command that
// failed.
func TestErrorsGetTheSentinelOfTheirKind(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		text string
		want error
	}{
		{"READONLY You can't write against a read only replica.", ErrReadOnly},
		{"READONLY You can't write against a read only replica. script: 5a8f, on @user_script:7.", ErrReadOnly},
		{"ERR Error running script (call to f_5a8f): @user_script:7: @user_script: 7: -READONLY You can't write against a read only replica. ", ErrReadOnly},
		{"LOADING Redis is loading the dataset in memory", ErrLoading},
		{"MOVED 3999 127.0.0.1:6381", ErrRedirected},
		{"ASK 3999 127.0.0.1:6381", ErrRedirected},
		{"CLUSTERDOWN Hash slot not served", ErrClusterDown},
		{"TRYAGAIN Multiple keys request during rehashing of slot", ErrTryAgain},
		{"ERR Script attempted to access a non local key in a cluster node script: bc02, on @user_script:79.", ErrTryAgain},
		{"Script attempted to access a non local key in a cluster node script: bc02, on @user_script:79.", ErrTryAgain},
		{"ERR Error running script (call to f_5a8f): @user_script:9: @user_script: 9: Script attempted to access a non local key in a cluster node ", ErrTryAgain},
		{"MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.", ErrPrimaryDown},
		{"NOREPLICAS Not enough good replicas to write.", ErrFewReplicas},
		{"MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist to disk.", ErrNotPersisting},
		{"NOAUTH Authentication required.", ErrDenied},
		{"NOPERM User app has no permissions to run the 'evalsha' command", ErrDenied},
		{"WRONGPASS invalid username-password pair or user is disabled.", ErrDenied},
		{"BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.", ErrBusy},
		{"OOM command not allowed when used memory > 'maxmemory'.", ErrMemory},
		{"ERR Error running script (call to f_5a8f): @user_script:9: @user_script: 9: -OOM command not allowed when used memory > 'maxmemory'. ", ErrMemory},
		{"Error running script (call to f_5a8f): @user_script:9: @user_script: 9: -OOM command not allowed when used memory > 'maxmemory'. ", ErrMemory},
		{"ERR The user executing the script can't run this command or subcommand script: bc02, on @user_script:16.", ErrDenied},
		{"The user executing the script can't access at least one of the keys mentioned in the command arguments script: bc02", ErrDenied},
		{"ERR ACL failure in script: User app has no permissions to run the 'set' command script: bc02", ErrDenied},
		{"NOSCRIPT No matching script. Please use EVAL.", nil},
		{"WRONGTYPE Operation against a key holding the wrong kind of value", nil},
		{"ERR unknown command 'EVALSHA'", nil},
		{"dial tcp 127.0.0.1:6379: connect: connection refused", nil},
		{"the answer is READONLY", nil},
	} {
		cause := errors.New(row.text)
		got := interpretError(fmt.Errorf("client: %w", cause))
		if !errors.Is(got, cause) {
			t.Errorf("%s: the client's error is lost in %v", row.text, got)
		}
		for _, kind := range kinds {
			if kind == nil {
				continue
			}
			if is := errors.Is(got, kind); is != errors.Is(row.want, kind) {
				t.Errorf("%s is %v: %t", row.text, kind, is)
			}
		}
		if full := errors.Is(got, driver.ErrFull); full != errors.Is(row.want, ErrMemory) {
			t.Errorf("%s means that there is no room: %t", row.text, full)
		}
		if again := interpretError(got); again.Error() != got.Error() {
			t.Errorf("interpreted twice it is %v", again)
		}
	}
	if err := interpretError(nil); err != nil {
		t.Errorf("no error became %v", err)
	}
}
