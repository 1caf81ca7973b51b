package redisstore

import (
	"context"
	"crypto/sha1" //nolint:gosec // names scripts, as Redis does
	_ "embed"
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/semelhq/semel/driver"
)

// A script is executed by its digest; where the server does not know it, it is sent.
type script struct{ text, digest any } // strings, as a Client takes them

var (
	//go:embed scripts/prelude.lua
	prelude string
	//go:embed scripts/load.lua
	loadText string
	//go:embed scripts/claim.lua
	claimText string
	//go:embed scripts/extend.lua
	extendText string
	//go:embed scripts/settle.lua
	settleText string
	//go:embed scripts/write.lua
	writeText string
	//go:embed scripts/seize.lua
	seizeText string
	//go:embed scripts/forget.lua
	forgetText string
	//go:embed scripts/savestep.lua
	saveStepText string
	//go:embed scripts/steps.lua
	stepsText string
	//go:embed scripts/audit.lua
	auditText string
	//go:embed scripts/scan.lua
	scanText string
	//go:embed scripts/cacheget.lua
	cacheGetText string
	//go:embed scripts/cachefill.lua
	cacheFillText string

	loadScript      = newScript(loadText)
	claimScript     = newScript(claimText)
	extendScript    = newScript(extendText)
	settleScript    = newScript(settleText)
	writeScript     = newScript(writeText)
	seizeScript     = newScript(seizeText)
	forgetScript    = newScript(forgetText)
	saveStepScript  = newScript(saveStepText)
	stepsScript     = newScript(stepsText)
	auditScript     = newScript(auditText)
	scanScript      = newScript(scanText)
	cacheGetScript  = newScript(cacheGetText)
	cacheFillScript = newScript(cacheFillText)
)

func newScript(text string) *script {
	text = strings.Replace(text, "--PRELUDE\n", prelude, 1)
	text = strings.ReplaceAll(text, "LAYOUT", strconv.Itoa(int(layoutVersion)))
	text = strings.ReplaceAll(text, "FENCELIFE", strconv.FormatInt(fenceLife.Milliseconds(), 10))
	digest := sha1.Sum([]byte(text)) //nolint:gosec // names scripts, as Redis does
	return &script{text, hex.EncodeToString(digest[:])}
}

// run executes the script on a key. A failure of the server has the sentinel of its kind.
func (s *script) run(ctx context.Context, client Client, key string, args ...any) (any, error) {
	command := make([]any, 0, 16)
	return s.send(ctx, client, key, append(append(command, "EVALSHA", s.digest, "1", key), args...))
}

// look executes a script that finds its keys itself, and changes none, on a node.
func (s *script) look(ctx context.Context, node Client, args ...any) (any, error) {
	return s.send(ctx, node, "", append([]any{"EVALSHA", s.digest, "0"}, args...))
}

func (s *script) send(ctx context.Context, client Client, key string, command []any) (any, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	reply, err := client.Do(ctx, key, command...)
	if codeOf(err) == "NOSCRIPT" {
		command[0], command[1] = "EVAL", s.text // which also makes it known
		reply, err = client.Do(ctx, key, command...)
	}
	return reply, interpretError(err)
}

// A reply is what the scripts of the verbs say.
type reply struct {
	wrote bool        // the verb changed the record
	now   driver.Time // the server's clock
	value string      // the record as it was before, or its head
}

// ask executes a script that replies a flag, the time in seconds and microseconds, and a value.
func (s *script) ask(ctx context.Context, client TextClient, key string, args ...string) (reply, error) {
	text, err := s.tell(ctx, client, key, args...)
	if err != nil {
		return reply{}, err
	}
	return parseReply(text)
}

// tell executes a script that replies a text.
func (s *script) tell(ctx context.Context, client TextClient, key string, args ...string) (string, error) {
	command := make([]string, 0, 16)
	command = append(append(command, "EVALSHA", s.digest.(string), "1", key), args...)
	text, _, err := doText(ctx, client, key, command...)
	if codeOf(err) == "NOSCRIPT" {
		again := slices.Clone(command)               // a client may still read the first
		again[0], again[1] = "EVAL", s.text.(string) // which also makes it known
		text, _, err = doText(ctx, client, key, again...)
	}
	return text, interpretError(err)
}

func parseReply(text string) (reply, error) {
	seconds, rest, _ := strings.Cut(text, " ")
	micros, value, ok := strings.Cut(rest, " ")
	flag, seconds := seconds[:min(1, len(seconds))], seconds[min(1, len(seconds)):]
	sec, err1 := strconv.ParseInt(seconds, 10, 64)
	usec, err2 := strconv.ParseInt(micros, 10, 64)
	if !ok || flag != "0" && flag != "1" || err1 != nil || err2 != nil {
		return reply{}, fmt.Errorf("script replied a text that begins with %.40q", text)
	}
	return reply{wrote: flag == "1", now: driver.Time(sec*1e6 + usec), value: value}, nil
}

// textOf returns a reply that is a string.
func textOf(v any) (string, bool) {
	switch v := v.(type) {
	case string:
		return v, true
	case []byte:
		return string(v), true
	}
	return "", false
}
