package chaos

import (
	"os"
	"os/exec"
	"slices"
	"syscall"
)

// apartVariable says that this process has been through Apart.
const apartVariable = "SEMEL_CHAOS_APART"

// Apart starts this program once more, in its own place, where nobody else sees what it mounts, and where that is gone
// with the last process that does, however it ends. There a user who is not root may mount too. A program that calls
// [Run] calls it first thing, after [Act].
//
// Where that can't be had, Apart returns, and the program goes on where it is: then a run that may not mount leaves out
// the fault that needs it, and says so in its report.
func Apart() {
	if _, done := os.LookupEnv(apartVariable); done {
		os.Unsetenv(apartVariable) //nolint:errcheck // then only those that are started from here know of it
		return
	}
	unshare, err := exec.LookPath("unshare") // of util-linux; a process with threads can't enter a user namespace itself
	if err != nil {
		return
	}
	args := []string{"unshare", "--mount"}
	if os.Geteuid() != 0 {
		args = append(args, "--user", "--map-current-user", "--keep-caps")
	}
	self, err := os.Executable()
	if err != nil || exec.Command(unshare, append(args[1:], "true")...).Run() != nil {
		return
	}
	args = slices.Concat(args, []string{"--", self}, os.Args[1:])
	syscall.Exec(unshare, args, append(os.Environ(), apartVariable+"=1")) //nolint:errcheck // it goes on here
}
