package store

import (
	"context"
	"errors"
	"io"
)

func (s *Store) openPostgres(ctx context.Context, c Config) error { return errors.New("TODO") }

func isClosedPipe(err error) bool { return errors.Is(err, io.ErrUnexpectedEOF) }
