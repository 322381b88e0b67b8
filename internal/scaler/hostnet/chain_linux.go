package hostnet

import (
	"slices"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/google/nftables/userdata"
)

// chain is a chain of nftables with all rules that it is to have.
type chain struct {
	at    *nftables.Chain
	rules []chainRule
}

// chainRule is one rule; its comment tells a person what it is for, and this room whether it is there.
type chainRule struct {
	comment string
	exprs   []expr.Any
}

// putChain queues a chain with exactly its rules.
func (k *kernel) putChain(c chain) {
	k.conn.AddChain(c.at)
	k.conn.FlushChain(c.at)
	for _, r := range c.rules {
		k.conn.AddRule(&nftables.Rule{Table: c.at.Table, Chain: c.at, Exprs: r.exprs, UserData: userdata.AppendString(nil, userdata.TypeComment, r.comment)})
	}
}

// stands reports whether a chain has its rules and no others, by their comments.
func (k *kernel) stands(c chain) (bool, error) {
	rules, err := k.conn.GetRules(c.at.Table, c.at)
	return err == nil && slices.EqualFunc(rules, c.rules, func(r *nftables.Rule, want chainRule) bool {
		comment, _ := userdata.GetString(r.UserData, userdata.TypeComment)
		return comment == want.comment
	}), err
}
