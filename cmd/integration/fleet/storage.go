package fleet

import (
	"errors"
	"fmt"
	"path/filepath"

	"github.com/semelhq/semel/internal/servers"
)

// Stores are the kinds of storage that several gateways can share.
func Stores() []string { return []string{"sqlite", "postgres", "redis", "tiered"} }

// A Storage is what the gateways of a fleet share.
type Storage struct {
	Store, Cache string // addresses

	Postgres *servers.Postgres // nil if there is none
	Redis    *servers.Redis
}

// NewStorage starts the servers of a storage. Dir is where files go.
func NewStorage(kind, dir string) (s *Storage, err error) {
	s = &Storage{}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("start the storage: %w", err), s.Close())
		}
	}()
	switch kind {
	case "sqlite":
		s.Store = "sqlite://" + filepath.Join(dir, "semel.db")
		return s, nil
	case "redis", "tiered":
		if s.Redis, err = servers.NewRedis(); err != nil {
			return s, err
		}
		s.Store = "redis://" + s.Redis.Addr()
		if kind == "redis" {
			return s, nil
		}
		s.Cache = s.Store
	case "postgres":
	default:
		return s, fmt.Errorf("unknown kind %q", kind)
	}
	if s.Postgres, err = servers.NewPostgres(servers.PostgresOptions{}); err != nil {
		return s, err
	}
	s.Store = s.Postgres.URL()
	return s, nil
}

// Close ends the servers.
func (s *Storage) Close() error {
	var errs []error
	if s.Postgres != nil {
		errs = append(errs, s.Postgres.Close())
	}
	if s.Redis != nil {
		errs = append(errs, s.Redis.Close())
	}
	return errors.Join(errs...)
}
