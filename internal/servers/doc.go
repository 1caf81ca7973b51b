// Package servers starts real PostgreSQL, Redis, RabbitMQ, PgBouncer, Prometheus and nginx servers for tests and measurements,
// and hurts them.
//
// Each server listens on a free port of 127.0.0.1 and keeps its files in a folder of its own. It outlives a Kill, a
// Stop and a Start, with its port and what it had stored; Close ends it and removes the folder. If the process that
// started servers dies, they die too, and their folders go.
//
// The programs have to be there: scripts/servers makes sure of them.
package servers

// A Server is what every server of this package can suffer. The methods may be called from any goroutine, one at a time
// for a server.
type Server interface {
	// Kill ends all processes of the server at once with SIGKILL. When it returns they are gone.
	Kill() error
	// Stop ends the server as its operator would, and returns when it has ended.
	Stop() error
	// Start starts a server that was killed or stopped, and returns when it answers.
	Start() error
	// Pause stops all processes of the server with SIGSTOP. Its connections stay, and nothing answers on them.
	Pause() error
	// Resume lets a paused server go on.
	Resume() error
	// Close ends the server in whatever state it is and removes its files.
	Close() error
}
