package redisstore

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// inspect asks the nodes what they are.
func (s *Store) inspect(ctx context.Context, o Options) error {
	s.native = true
	err := s.eachNode(ctx, func(ctx context.Context, node Client) error {
		got, err := node.Do(ctx, "", "INFO")
		if err = interpretError(err); err != nil {
			return fmt.Errorf("ask the server for INFO: %w", err)
		}
		text, _ := textOf(got)
		info := parseInfo(text)
		s.cluster = s.cluster || info["cluster_enabled"] == "1"
		s.native = s.native && !s.cluster && atLeast(info["redis_version"], 7, 0) // SET with NX and GET
		if info["aof_enabled"] == "0" {
			o.Log.Warn("the Redis server keeps no append-only file: what it has acknowledged since it last saved is lost if it restarts")
		}
		return errors.Join(checkVersion(info), checkEviction(info, o))
	})
	if errors.Is(err, ErrDenied) {
		o.Log.Warn("the Redis server does not tell its version and its maxmemory-policy", "error", err)
		s.native = false
		return nil
	}
	return err
}

// parseInfo reads the reply of INFO.
func parseInfo(text string) map[string]string {
	info := map[string]string{}
	for line := range strings.Lines(text) {
		if name, value, ok := strings.Cut(strings.TrimRight(line, "\r\n"), ":"); ok {
			info[name] = value
		}
	}
	return info
}

// checkVersion refuses servers without SET … PXAT and scripts whose effects are replicated.
func checkVersion(info map[string]string) error {
	if version := info["redis_version"]; versionOf(version) != [2]int{} && !atLeast(version, 6, 2) {
		return fmt.Errorf("%w: it is %s", ErrVersion, version)
	}
	return nil
}

func atLeast(version string, major, minor int) bool {
	v := versionOf(version)
	return v[0] > major || v[0] == major && v[1] >= minor
}

// versionOf returns the first two numbers of a version, or zeros if it has not two.
func versionOf(version string) [2]int {
	major, rest, _ := strings.Cut(version, ".")
	minor, _, _ := strings.Cut(rest, ".")
	x, err1 := strconv.Atoi(major)
	y, err2 := strconv.Atoi(minor)
	if err1 != nil || err2 != nil {
		return [2]int{}
	}
	return [2]int{x, y}
}

// checkEviction refuses servers that make room by dropping keys: most records have an end, so that each policy but
// noeviction may drop them.
func checkEviction(info map[string]string, o Options) error {
	policy, limit := info["maxmemory_policy"], info["maxmemory"]
	if policy == "" || policy == "noeviction" {
		return nil
	}
	switch {
	case limit == "" || limit == "0":
		o.Log.Warn("the Redis server would evict records if maxmemory were set", "maxmemory-policy", policy, "want", "noeviction")
	case o.AllowEviction:
		o.Log.Warn("the Redis server may evict records: their operations then run again", "maxmemory-policy", policy, "maxmemory", limit, "want", "noeviction")
	default:
		return fmt.Errorf("%w: its maxmemory is %s bytes and its maxmemory-policy %s, want noeviction", ErrEvicts, limit, policy)
	}
	return nil
}
