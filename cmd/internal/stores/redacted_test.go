package stores

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestAttack09_NoPasswordOfAnAddressIsShown(t *testing.T) {
	t.Parallel()
	for address, want := range map[string]string{
		"postgres://u:hunter2@db/payments":        "postgres://u:xxxxx@db/payments",
		"postgres://db/payments?password=hunter2": "postgres://db/payments?password=xxxxx",
		"postgres//u:hunter2@db/payments":         "postgres…",
		"postgres:/u:hunter2@db/payments":         "postgres…",
		"postgres:u:hunter2@db/payments":          "postgres…",
		"u:hunter2@db/payments":                   "u…",
		"host=db user=u password=hunter2":         "host…",
		"postgres://u:1/hunter2@db/payments":      "postgres…",
		"postgres://u:hunter2/%zz@db":             "postgres…",
		"postgers://u:hunter2@db/payments":        "postgers://u:xxxxx@db/payments",
		"redis//:hunter2@cache":                   "redis…",
		"rediss://:hunter2@cache":                 "rediss://:xxxxx@cache",
		"sqlite:///var/lib/a@b/semel.db":          "sqlite:///var/lib/a@b/semel.db",
		"memory://":                               "memory://",
		"semel.db":                                "semel.db",
	} {
		if got := Redacted(address); got != want || strings.Contains(got, "hunter2") {
			t.Errorf("%s is shown as %s, want %s", address, got, want)
		}
		if err := Check(address); err != nil && strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: the error is %v", address, err)
		}
	}
}

func TestAttack09_ADatabaseThatOthersMayReadIsRefused(t *testing.T) {
	t.Parallel()
	for mode, refused := range map[os.FileMode]bool{0o600: false, 0o660: false, 0o644: true, 0o606: true} {
		path := filepath.Join(t.TempDir(), "semel.db")
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
		opened, err := Open(t.Context(), "sqlite://"+path, Options{})
		if refused != (err != nil) || refused && !strings.Contains(err.Error(), "others have access to "+path) {
			t.Errorf("with mode %04o: %v", mode, err)
		}
		if err == nil {
			if err := opened.Close(); err != nil {
				t.Error(err)
			}
		}
	}
}
