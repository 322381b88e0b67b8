package store

import (
	"context"
	"database/sql"
	"embed"
	"fmt"
	"io/fs"

	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/lock"
)

//go:embed migrations/*.sql
var migrations embed.FS

// Migrations are the embedded schema files.
func Migrations() fs.FS {
	sub, err := fs.Sub(migrations, "migrations")
	if err != nil {
		panic(err) // the name above is wrong
	}
	return sub
}

// migrate brings the schema up to date. On PostgreSQL a session lock lets one of several starting nodes do it while the
// others wait.
func migrate(ctx context.Context, pool *sql.DB, d Dialect, m schema) error {
	files := m.files
	if files == nil {
		files = Migrations()
	}
	dialect, opts := goose.DialectSQLite3, []goose.ProviderOption{goose.WithDisableGlobalRegistry(true)}
	if d == PostgreSQL {
		locker, err := lock.NewPostgresSessionLocker(lock.WithLockTimeout(1, 300)) // tries every second
		if err != nil {
			return err
		}
		dialect, opts = goose.DialectPostgres, append(opts, goose.WithSessionLocker(locker))
	}
	provider, err := goose.NewProvider(dialect, pool, files, opts...)
	if err != nil {
		return fmt.Errorf("read migrations: %w", err)
	}
	if err := refuseNewer(ctx, provider); err != nil {
		return err
	}
	if m.asIs {
		return refuseOlder(ctx, provider)
	}
	if _, err := provider.Up(ctx); err != nil {
		return fmt.Errorf("migrate: %w", err)
	}
	return refuseNewer(ctx, provider) // a newer node may have been faster
}

// schema says what to bring a database up to.
type schema struct {
	files fs.FS // nil for the embedded ones
	asIs  bool  // Config.AsIs
}

func refuseOlder(ctx context.Context, p *goose.Provider) error {
	have, want, err := p.GetVersions(ctx)
	if err != nil {
		return fmt.Errorf("read schema version: %w", err)
	}
	if have < want {
		return fmt.Errorf("%w: its schema is version %d, this program's is %d. Use the kici that last ran on it, or start a server of this version first", ErrOtherSchema, have, want)
	}
	return nil
}

func refuseNewer(ctx context.Context, p *goose.Provider) error {
	have, want, err := p.GetVersions(ctx)
	if err != nil {
		return fmt.Errorf("read schema version: %w", err)
	}
	if have > want {
		return fmt.Errorf("%w: its schema is version %d, this binary knows %d. Start a kici at least as new as the one that "+
			"last ran on this database, or restore a backup taken before the upgrade", ErrNewerSchema, have, want)
	}
	return nil
}
