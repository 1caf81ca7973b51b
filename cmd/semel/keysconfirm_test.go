package main

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/driver"
)

// decided runs a decision, and answers its question.
func (s *shop) decided(confirm func(context.Context, string) (bool, error), args ...string) (status int, stdout, stderr string) {
	s.t.Helper()
	var out, err output
	m := Main{Stdout: &out, Stderr: &err, Confirm: confirm}
	status = m.Run(s.t.Context(), append([]string{"keys", "--store", s.address}, args...))
	return status, out.String(), err.String()
}

func TestField22_WhatLetsAnEffectHappenAgainIsAskedFirst(t *testing.T) {
	t.Parallel()
	prepare := map[string]func(*shop){
		"done":     func(s *shop) { s.runs = 1; s.pay("acme", "k") },
		"unknown":  func(s *shop) { s.pay("acme", "k") },
		"released": func(s *shop) { s.pay("acme", "k"); s.must("release", "--yes", "--reason", "-", "--", s.id("k")) },
	}
	for _, c := range []struct {
		found  string
		args   []string
		means  string // "" if nothing is asked
		status int    // if the answer is yes
	}{
		{"done", []string{"forget"}, forgetMeans, 0},
		{"unknown", []string{"forget"}, forgetMeans, 0},
		{"unknown", []string{"release"}, releaseMeans, 0},
		{"done", []string{"forget", "--force"}, "", 0},
		{"done", []string{"forget", "--yes"}, "", 0},
		{"unknown", []string{"release", "--force"}, "", 0},
		{"unknown", []string{"release", "--yes"}, "", 0},
		{"unknown", []string{"complete", "--no-answer"}, "", 0},
		{"released", []string{"forget"}, "", 0},
		{"released", []string{"release"}, "", 0},
		{"done", []string{"release"}, "", 1}, // refused, whatever is answered
	} {
		t.Run(c.found+" "+strings.Join(c.args, " "), func(t *testing.T) {
			t.Parallel()
			s := newShop(t, semel.Policy{})
			prepare[c.found](s)
			args := append(c.args, "--reason", "r", "--", s.id("k"))
			before, questions := s.shown("k"), 0
			answer := func(yes bool, err error) func(context.Context, string) (bool, error) {
				return func(_ context.Context, question string) (bool, error) {
					questions++
					contains(t, question, "POST /payments", c.found+": ", c.means, "[y/N]")
					return yes, err
				}
			}
			if c.means != "" {
				for want, no := range map[string]func(context.Context, string) (bool, error){
					"":                   answer(false, nil),
					"the terminal hangs": answer(true, errors.New("the terminal hangs")),
				} {
					status, stdout, stderr := s.decided(no, args...)
					if status != 1 || stdout != "" || s.shown("k") != before {
						t.Errorf("exit status %d, and it is\n%s", status, s.shown("k"))
					}
					contains(t, stderr, "nothing was changed", want)
				}
				status, stdout, stderr := s.keys(args...) // at no terminal
				if status != 2 || stdout != "" || s.shown("k") != before {
					t.Errorf("exit status %d, and it is\n%s", status, s.shown("k"))
				}
				contains(t, stderr, c.found+": ", c.means, "--yes", "--force")
				questions = 0
			}
			status, _, stderr := s.decided(answer(true, nil), args...)
			if status != c.status {
				t.Errorf("exit status %d: %s", status, stderr)
			}
			if asked := questions > 0; asked != (c.means != "") {
				t.Errorf("asked %d questions", questions)
			}
		})
	}
}

// shown is what is known about an operation, without how long ago that was.
func (s *shop) shown(key string) string {
	s.t.Helper()
	id, err := driver.ParseID(s.id(key))
	if err != nil {
		s.t.Fatal(err)
	}
	rec, err := s.store.Store.Load(s.t.Context(), id)
	if err != nil {
		s.t.Fatal(err)
	}
	_, shown, _ := s.keys("show", "--", s.id(key))
	_, decisions, _ := strings.Cut(shown, "\ndecisions")
	return strings.Join([]string{rec.Reads(rec.OnLost).String(), rec.Error, decisions}, "\n")
}

// It waits for an answer until it is told to end.
func TestField22_AQuestionEndsWithTheProgram(t *testing.T) {
	t.Parallel()
	s := newShop(t, semel.Policy{})
	s.pay("acme", "k")
	ctx, cancel := context.WithCancel(t.Context())
	m := Main{Stdout: &output{}, Stderr: &output{}, Confirm: func(ctx context.Context, _ string) (bool, error) {
		cancel()
		<-ctx.Done()
		return false, context.Cause(ctx)
	}}
	if status := m.Run(ctx, []string{"keys", "--store", s.address, "forget", "--reason", "r", "--", s.id("k")}); status != 1 {
		t.Errorf("exit status %d", status)
	}
	contains(t, s.shown("k"), "unknown")
}
