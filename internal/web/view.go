package web

import (
	"fmt"
)

func (p page) path(format string, args ...any) string { return p.Base + fmt.Sprintf(format, args...) }

const firstSteps = `kici init                                  # a first workflow, in your repository
kici source add local shop /srv/git/shop.git
kici source install-hook shop
git push`

func count(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}
