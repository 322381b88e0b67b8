package sandbox

import "testing"

func TestTry(t *testing.T) {
	r := newRig(t)
	for _, ns := range []bool{true, false} {
		res := r.play(t, played{Config: r.config(), Namespaces: ns, Scripts: []string{
			"id; ls /; cat " + r.path("seen", "file") + "; cat " + r.path("secret", "key") + "; echo hi > x; touch /tmp/y; ls -la /tmp; touch /usr/z",
			"grep -E 'NoNewPrivs|Seccomp|Cap' /proc/self/status; ls /proc | head -5; unshare -U true; ip addr; (echo > /dev/tcp/127.0.0.1/15432) && echo connected; sleep 100 & mount -t tmpfs x /tmp; python3 --version",
			"ls /tmp; jobs; ps aux; kill -9 $$",
			"nonexistent; exit 7",
		}})
		t.Logf("%+v %v", res.Report, res.Error)
		for _, x := range res.Results {
			t.Logf("%+v\n%s", x.Exit, x.Out+x.Error)
		}
	}
}
