//go:build unix

package main

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// The gateway is killed after it has answered 202, while the service works. The next one on the same file finishes the
// operation, though no client asks again.
func TestR33_R52_WhatAKilledGatewayHasPromisedIsFinished(t *testing.T) {
	t.Parallel()
	path, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	var runs atomic.Int32
	arrived := make(chan struct{}, 1)
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if runs.Add(1) == 1 {
			arrived <- struct{}{}
			<-r.Context().Done() // the gateway dies
			return
		}
		w.WriteHeader(http.StatusCreated)
		io.WriteString(w, "attempt "+r.Header.Get("Idempotency-Attempt"))
	}))
	defer upstream.Close()
	dir := t.TempDir()
	for name, content := range map[string]string{"keys": "k1 " + strings.Repeat("07", 32) + "\n", "gateway.yaml": `
listen: 127.0.0.1:0
admin: 127.0.0.1:0
upstream: ` + upstream.URL + `
scope: single
encryption_keys_file: keys
operations: /operations
routes:
  - {match: POST /payments, on_lost: rerun, respond_async: true, lease: 500ms, retention: 1h}
`} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	begin := func() (*exec.Cmd, string) {
		log := &output{}
		cmd := exec.Command(path, "gateway", "--config", "gateway.yaml", "--log-format", "json")
		cmd.Dir, cmd.Stderr = dir, log
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			cmd.Process.Signal(syscall.SIGKILL) //nolint:errcheck // it may have ended
			cmd.Wait()                          //nolint:errcheck // it was killed
		})
		listen, _ := addresses(t, log)
		return cmd, "http://" + listen
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	send := func(method, url string, header ...string) (int, http.Header, string) {
		t.Helper()
		r, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(""))
		if err != nil {
			t.Fatal(err)
		}
		for i := 0; i < len(header); i += 2 {
			r.Header.Set(header[i], header[i+1])
		}
		res, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		body, err := io.ReadAll(res.Body)
		if err != nil {
			t.Fatal(err)
		}
		return res.StatusCode, res.Header, string(body)
	}

	first, address := begin()
	status, header, body := send("POST", address+"/payments", "Idempotency-Key", "k", "Prefer", "respond-async")
	if status != http.StatusAccepted {
		t.Fatalf("answered %d %s", status, body)
	}
	<-arrived
	if err := first.Process.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	_, address = begin()
	location := address + header.Get("Location")
	eventually(t, "the operation has ended", func() bool {
		status, _, body := send("GET", location)
		var o struct{ State string }
		if err := json.Unmarshal([]byte(body), &o); err != nil || status != 200 || o.State != "running" && o.State != "succeeded" {
			t.Fatalf("told %d %s", status, body)
		}
		return o.State == "succeeded"
	})
	if status, _, body := send("GET", location+"/result"); status != http.StatusCreated || body != "attempt 2" {
		t.Errorf("the result is %d %q, want that of the second attempt", status, body)
	}
}
