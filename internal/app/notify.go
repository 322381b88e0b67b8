package app

import (
	"context"
	"net"
	"os"
	"time"
)

// tellSystemd sends one state ("READY=1") to the service manager that started this process, if one did (sd_notify). It is a
// courtesy: nothing depends on its arrival.
func tellSystemd(state string) {
	address := os.Getenv("NOTIFY_SOCKET")
	if address == "" {
		return
	}
	if address[0] == '@' { // abstract
		address = "\x00" + address[1:]
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	var d net.Dialer
	conn, err := d.DialContext(ctx, "unixgram", address)
	if err != nil {
		return
	}
	defer conn.Close()
	_, _ = conn.Write([]byte(state))
}
