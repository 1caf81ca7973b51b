// Package answer has what a guard keeps of a handler's answer and gives again: its body, in memory or in a file, its
// fields but those that belong to one exchange, and how it goes out.
package answer
