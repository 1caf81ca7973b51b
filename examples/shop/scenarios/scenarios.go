// Package scenarios holds the checker's scenarios of the shop: one of each call that is protected.
package scenarios

import "embed"

// Files are the scenarios, in YAML.
//
//go:embed *.yaml
var Files embed.FS
