// Command kici is the whole product in one program: server, agent and command line. Called as kici-admin it is the operator's
// command line.
package main

import (
	"context"
	"os"

	"github.com/kici-go/kici/internal/app"
)

func main() { os.Exit(app.Main(context.Background(), os.Args)) }
