package main

import (
	"maps"
	"slices"
	"strings"
	"testing"
)

// scanned maps each test that was found to what it names.
func scanned(t *testing.T, files map[string]string) map[string]string {
	t.Helper()
	found, err := scanTests(tree(t, files))
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, f := range found {
		var names []string
		for _, i := range f.ids {
			names = append(names, i.String())
		}
		got[f.name] = strings.Join(names, " ")
	}
	return got
}

func TestR91_WhatNamesARule(t *testing.T) {
	t.Parallel()
	got := scanned(t, map[string]string{"a_test.go": `package p

// Once is about R-26 and case 11.
func TestOnce(t *testing.T) {}

// It names R-3 twice: R-3.
func TestR3_R2_Twice(t *testing.T) {}

// R-9 stands above, but not directly.

func TestPlain(t *testing.T) {}

func FuzzR1_Header(f *testing.F) {}

// R-7
func ExampleGuard() {
	// Output: x
}

// R-8: nothing checks what it prints.
func ExampleKey() {}

// R-4: not a test, the go command wants an upper-case letter.
func Testify(t *testing.T) {}

// R-4: set-up for the others.
func TestMain(m *testing.M) {}

// R-4: a method.
func (s suite) TestR4_Method(t *testing.T) {}

// R-4: takes too much.
func TestR4_Helper(t *testing.T, n int) {}

// R-4: a benchmark proves nothing.
func BenchmarkR4(b *testing.B) {}
`})
	want := map[string]string{
		"TestOnce":        "R-26 case 11",
		"TestR3_R2_Twice": "R-2 R-3",
		"FuzzR1_Header":   "R-1",
		"ExampleGuard":    "R-7",
	}
	if !maps.Equal(got, want) {
		t.Errorf("found %v, want %v", got, want)
	}
}

func TestR91_OnlyFilesOfTestsCount(t *testing.T) {
	t.Parallel()
	one := tests("TestR1_One")
	got := scanned(t, map[string]string{
		"a_test.go":                 one,
		"store/deep/b_test.go":      one,
		"raced_test.go":             "//go:build race\n\n" + tests("TestR1_Raced"),
		"tagged_test.go":            "//go:build nosuchtag\n\n" + one,
		"a.go":                      one,
		".hidden/c_test.go":         one,
		"_old/c_test.go":            one,
		"testdata/c_test.go":        one,
		"vendor/c_test.go":          one,
		"js/node_modules/c_test.go": one,
	})
	want := []string{"TestR1_One", "TestR1_Raced", "store/deep.TestR1_One"}
	if names := slices.Sorted(maps.Keys(got)); !slices.Equal(names, want) {
		t.Errorf("found %v, want %v", names, want)
	}
}
