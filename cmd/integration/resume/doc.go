// Package resume proves that an operation of several steps ends with one effect a step, wherever its process dies, and
// whoever goes on with it: the client's next attempt, a completer, or both at once.
package resume
