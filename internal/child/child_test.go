package child

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"testing"

	"github.com/semelhq/semel/internal/proof"
)

const variable = "CHILD_TEST"

func TestMain(m *testing.M) {
	if os.Getenv(variable) != "" {
		fmt.Print(race)
		return
	}
	os.Exit(m.Run())
}

func TestAChildIsTheTestItselfWithoutTheRaceDetector(t *testing.T) {
	t.Chdir(t.TempDir()) // the folder at the start counts
	path, err := Program()
	if err != nil {
		t.Fatal(err)
	}
	if again, err := Program(); again != path || err != nil {
		t.Errorf("a second call gives %s, %v; the first gave %s", again, err, path)
	}
	c := exec.Command(path)
	c.Env = append(os.Environ(), variable+"=1")
	out, err := c.CombinedOutput()
	if want := fmt.Sprint(race && proof.Long()); err != nil || string(out) != want {
		t.Errorf("it runs with the detector: %q, %v; want %s", out, err, want)
	}
	if err := Remove(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); (race && !proof.Long()) != errors.Is(err, fs.ErrNotExist) {
		t.Errorf("after Remove it is there: %v", err)
	}
}
