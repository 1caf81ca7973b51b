package gateway

import "github.com/semelhq/semel"

// What is lost is not run again: the service would charge again. Rerun is for services that recognise a repeat.
func solved() semel.Policy {
	return semel.Policy{OnLost: semel.Hold}
}
