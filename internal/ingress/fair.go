package ingress

// mayWait is how many deliveries of one organisation may wait (XC-7): half of all, where there are several organisations, so that one
// that floods leaves room for the others.
func mayWait(all, orgs int64) int64 {
	if orgs < 2 {
		return all
	}
	return max(all/2, 1)
}

// maxShares bounds the organisations among which one claim is divided.
const maxShares = 8

// share is how many deliveries of one organisation a claim takes first.
type share struct {
	org string
	n   int
}

// shares divides n places among organisations, equally, beginning with another one at each turn; what is left over after that
// goes to whoever came first (XC-7). One organisation alone needs no shares.
func shares(orgs []string, n, turn int) []share {
	if len(orgs) < 2 || n < 1 {
		return nil
	}
	count := min(len(orgs), maxShares, n)
	out := make([]share, count)
	for i := range out {
		out[i] = share{orgs[(turn+i)%len(orgs)], n / count}
	}
	return out
}
