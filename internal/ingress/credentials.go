package ingress

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/kici-go/kici/internal/ci"
	"github.com/kici-go/kici/internal/source"
	"github.com/kici-go/kici/internal/store"
	"github.com/kici-go/kici/internal/store/db"
)

// RevealSecret returns what senders sign with. The caller needs its own permission for it, and an audit row (ING-5).
func (c *Catalog) RevealSecret(ctx context.Context, orgID, ref string) (string, error) {
	row, err := c.Get(ctx, orgID, ref)
	if err != nil {
		return "", err
	}
	all, err := c.secrets(ctx, row)
	return all[source.SecretWebhook], err
}

// RotateSecret makes a new webhook secret and returns it. The former one is accepted for OldSecretFor, or until DropOldSecret; one
// before that ends now.
func (c *Catalog) RotateSecret(ctx context.Context, orgID, ref string) (string, error) {
	made := ci.RandomHex(32)
	err := c.change(ctx, orgID, ref, func(tx *store.Tx, row db.Source) (int64, error) {
		all, err := c.d.Secrets.Open(ctx, row.OrgID, SecretScope(row.ID))
		if err != nil {
			return 0, err
		}
		old := all[source.SecretWebhook].Value
		if old == "" {
			return 0, invalid("source %s verifies its senders without a secret", row.Name)
		}
		if err := c.d.Secrets.Put(ctx, tx, secretOf(row, source.SecretWebhookOld), old); err != nil {
			return 0, err
		}
		return 1, c.d.Secrets.Put(ctx, tx, secretOf(row, source.SecretWebhook), made)
	})
	if err != nil {
		return "", err
	}
	return made, nil
}

// DropOldSecret ends the webhook secret before the last rotation now.
func (c *Catalog) DropOldSecret(ctx context.Context, orgID, ref string) error {
	return c.change(ctx, orgID, ref, func(tx *store.Tx, row db.Source) (int64, error) {
		return 1, c.d.Secrets.Drop(ctx, tx, secretOf(row, source.SecretWebhookOld))
	})
}

// SetToken replaces the token of a source on a forge. Deliveries that wait because the old one was refused are tried soon.
func (c *Catalog) SetToken(ctx context.Context, orgID, ref, token string) error {
	return c.setCredential(ctx, orgID, ref, source.SecretToken, token)
}

// SetSSHKey replaces the private key that a source on a forge clones with.
func (c *Catalog) SetSSHKey(ctx context.Context, orgID, ref, key string) error {
	if key != "" {
		key = strings.TrimSpace(key) + "\n" // ssh insists on it
	}
	return c.setCredential(ctx, orgID, ref, source.SecretSSHKey, key)
}

func (c *Catalog) setCredential(ctx context.Context, orgID, ref, key, value string) error {
	if value == "" {
		return invalid("the value is empty")
	}
	return c.change(ctx, orgID, ref, func(tx *store.Tx, row db.Source) (int64, error) {
		if errs := checkSecrets(row.Kind, map[string]string{key: value}); len(errs) > 0 {
			return 0, invalidAll("source "+row.Name+" cannot have it", errors.Join(errs...))
		}
		if _, err := tx.HastenSourcePoll(ctx, tx.Now(), row.ID); err != nil {
			return 0, err
		}
		return 1, c.d.Secrets.Put(ctx, tx, secretOf(row, key), value)
	})
}

// InstallHook lets a source create its webhook at the forge, or bring it up to date, and returns the address that is told there.
func (c *Catalog) InstallHook(ctx context.Context, orgID, ref string) (address string, err error) {
	ctx, cancel := context.WithTimeout(ctx, hookTimeout)
	defer cancel()
	row, err := c.Get(ctx, orgID, ref)
	if err != nil {
		return "", err
	}
	e, err := c.open(ctx, row) // not from the copy in memory: a secret that was just made must be the one that is installed
	if err != nil {
		return "", err
	}
	src, err := e.usable()
	if err != nil {
		return "", err
	}
	hooks, ok := src.(source.HookInstaller)
	if !ok {
		return "", invalid("kici cannot create the webhook of a %s source by itself", row.Kind)
	}
	address = c.WebhookURL(row.Kind, row.OrgID, row.Name)
	return address, c.cured(row, hooks.InstallHook(ctx, address))
}

// cured adds to a refused credential what gives the source another one.
func (c *Catalog) cured(row db.Source, err error) error {
	if errors.Is(err, source.ErrDenied) && source.OnForge(row.Kind) {
		return fmt.Errorf("%w; give it another one with `kici source set-token %s` (or set-ssh-key)", err, row.Name)
	}
	return err
}
