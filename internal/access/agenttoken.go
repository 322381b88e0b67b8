package access

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/kici-go/kici/internal/ci"
	"github.com/kici-go/kici/internal/store"
	"github.com/kici-go/kici/internal/store/db"
)

// Types of agent tokens (AG-4).
const (
	StaticToken    = "static"    // made by an operator, for agents started by hand
	EphemeralToken = "ephemeral" // made with the agent, the only one that it admits
)

// NewAgentToken returns a fresh kat_ token, its hash as stored and the prefix that people may see (AG-4).
func NewAgentToken() (token, hash, prefix string) {
	token = "kat_" + ci.RandomHex(32)
	return token, HashToken(token), token[:12]
}

// CreateAgentToken makes a static token whose agents may register with the given labels only; empty labels do not limit.
func (s *Service) CreateAgentToken(ctx context.Context, by Principal, labels, mandatory []string) (token string, row db.AgentToken, err error) {
	if err := by.Require(TokenManage); err != nil {
		return "", db.AgentToken{}, err
	}
	labelText, err := labelJSON(labels)
	if err != nil {
		return "", db.AgentToken{}, err
	}
	mandatoryText, err := labelJSON(mandatory)
	if err != nil {
		return "", db.AgentToken{}, err
	}
	token, hash, prefix := NewAgentToken()
	err = s.st.Write(ctx, func(tx *store.Tx) error {
		if err := tx.InsertAgentToken(ctx, db.InsertAgentTokenParams{
			ID: s.env.NewID(), OrgID: by.OrgID, TokenHash: hash, Prefix: prefix, Type: StaticToken, Labels: labelText,
			MandatoryLabels: mandatoryText, CreatedBy: by.TokenID, CreatedAt: tx.Now(),
		}); err != nil {
			return err
		}
		var err error
		row, err = tx.AgentTokenByHash(ctx, hash)
		return err
	})
	if err != nil {
		return "", db.AgentToken{}, fmt.Errorf("create agent token: %w", err)
	}
	return token, row, nil
}

const (
	labelsAllowed = 100
	labelLength   = 255
)

func labelJSON(labels []string) (string, error) {
	labels = ci.NormalizeLabels(labels)
	if len(labels) > labelsAllowed {
		return "", fmt.Errorf("%w: more than %d labels", ErrInvalid, labelsAllowed)
	}
	for _, l := range labels {
		if len(l) > labelLength {
			return "", fmt.Errorf("%w: a label is longer than %d characters", ErrInvalid, labelLength)
		}
	}
	text, err := json.Marshal(labels)
	return string(text), err
}

// ListAgentTokens returns the organisation's agent tokens of a type, "" for all.
func (s *Service) ListAgentTokens(ctx context.Context, orgID, tokenType string) ([]db.AgentToken, error) {
	return s.st.Read().AgentTokens(ctx, orgID, tokenType)
}

// RevokeAgentToken ends a token and tells every coordinator (TopicAgentTokens, keyed by the token's id), so that sessions
// opened with it are closed.
func (s *Service) RevokeAgentToken(ctx context.Context, by Principal, id string) (db.AgentToken, error) {
	if err := by.Require(TokenManage); err != nil {
		return db.AgentToken{}, err
	}
	var row db.AgentToken
	err := s.st.Write(ctx, func(tx *store.Tx) (err error) {
		tx.Notify(store.TopicAgentTokens, id)
		row, err = tx.RevokeAgentToken(ctx, nullInt(tx.Now()), id, by.OrgID)
		if errors.Is(err, sql.ErrNoRows) {
			return missing("agent token " + id)
		}
		return err
	})
	if err != nil {
		return db.AgentToken{}, wrapUnlessMissing("revoke agent token", err)
	}
	return row, nil
}

// lookup turns "no rows" into ErrNotFound.
func lookup(err error) error {
	if errors.Is(err, sql.ErrNoRows) {
		return ErrNotFound
	}
	return err
}
