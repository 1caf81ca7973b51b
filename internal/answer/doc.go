// Package answer has the parts of a handler's answer that a guard keeps and replays: its body, in memory or in a file,
// and its fields, without those that belong to one exchange. It also sends an answer.
package answer
