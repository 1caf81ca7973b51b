package chaos

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/semelhq/semel/cmd/integration/faults"
	"github.com/semelhq/semel/internal/servers"
)

// server returns the one that decides.
func (s *site) server() servers.Server {
	if s.postgres != nil {
		return s.postgres
	}
	return s.redis
}

func kill(s servers.Server, hold func()) error {
	err := s.Kill()
	if err == nil {
		hold()
		err = s.Start()
	}
	return err
}

func pause(s servers.Server, hold func()) error {
	err := s.Pause()
	if err == nil {
		hold()
		err = s.Resume()
	}
	return err
}

// block spoils a front's way to the server that decides.
func (s *site) block(b blow, hold func()) error {
	w := s.ways[b.front]
	p := w.postgres
	if p == nil {
		p = w.redis
	}
	switch b.fault {
	case RepliesLost:
		p.DropReplies()
	case Slow:
		p.Slow(b.delay)
	default:
		return b.partition(p, hold)
	}
	hold()
	return p.Restore()
}

func (b blow) partition(p *faults.Proxy, hold func()) error {
	if b.loud {
		p.Cut()
	} else {
		p.BlackHole()
	}
	hold()
	return p.Restore()
}

// forbidWrites has the server refuse them.
func (s *site) forbidWrites(hold func()) error {
	if s.postgres == nil {
		if err := inline(s.redis.Addr(), "REPLICAOF 127.0.0.1 1"); err != nil { // nobody listens there
			return err
		}
		hold()
		return inline(s.redis.Addr(), "REPLICAOF NO ONE")
	}
	err := s.postgres.Kill()
	if err == nil {
		err = s.postgres.StartInRecovery()
	}
	if err == nil {
		hold()
		err = s.postgres.Kill()
	}
	if err == nil {
		err = s.postgres.Start()
	}
	return err
}

// takeConnections takes all that the server has left, and a front's own.
func (s *site) takeConnections(ctx context.Context, front int, hold func()) error {
	if s.postgres == nil {
		return s.takeRedis(front, hold)
	}
	var taken []*pgx.Conn
	defer func() {
		for _, c := range taken {
			c.Close(context.WithoutCancel(ctx)) //nolint:errcheck // it has done its work
		}
	}()
	s.ways[front].postgres.ResetAll()
	for ctx.Err() == nil {
		c, err := pgx.Connect(ctx, s.postgres.URL())
		var refused *pgconn.PgError
		switch {
		case err == nil:
			taken = append(taken, c)
			continue
		case errors.As(err, &refused) && refused.Code == "53300": // too_many_connections
		case ctx.Err() == nil:
			return err
		}
		break
	}
	hold()
	return nil
}

func (s *site) takeRedis(front int, hold func()) error {
	c, err := net.Dial("tcp", s.redis.Addr())
	if err != nil {
		return err
	}
	defer c.Close()
	if err := ask(c, "CONFIG SET maxclients 1"); err != nil {
		return err
	}
	s.ways[front].redis.ResetAll()
	hold()
	return ask(c, "CONFIG SET maxclients 10000")
}

// inline sends a Redis one command, to which it has to reply OK.
func inline(addr, command string) error {
	c, err := net.Dial("tcp", addr)
	if err != nil {
		return err
	}
	defer c.Close()
	return ask(c, command)
}

func ask(c net.Conn, command string) error {
	c.SetDeadline(time.Now().Add(startTime)) //nolint:errcheck // the connection is open
	if _, err := fmt.Fprintf(c, "%s\r\n", command); err != nil {
		return err
	}
	reply, err := bufio.NewReader(c).ReadString('\n')
	if err == nil && !strings.HasPrefix(reply, "+OK") {
		err = fmt.Errorf("%s: %s", command, strings.TrimSpace(reply))
	}
	return err
}
