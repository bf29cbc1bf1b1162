package crash

import (
	"bytes"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestServersStartTogether starts three servers at the same moment over an empty etcd, and checks that none ends another and that
// default/kubernetes leads to all of them: to one that was killed until its lease has expired, to one that stops no longer than that.
// PROA_TOGETHER=20 starts them so many times.
func TestServersStartTogether(t *testing.T) {
	t.Parallel()
	rounds := 1
	if text := os.Getenv("PROA_TOGETHER"); text != "" {
		var err error
		if rounds, err = strconv.Atoi(text); err != nil {
			t.Fatal(err)
		}
	}
	for round := range rounds {
		t.Run(fmt.Sprint(round), startTogether)
	}
}

func startTogether(t *testing.T) {
	etcd := startEtcd(t, 1)
	keys := newCluster(t) // its folder gets the keys that servers of one cluster share
	keys.start()
	keys.kill()
	var all []*cluster
	for range 3 {
		c := newCluster(t)
		c.args = []string{"--etcd-servers", etcd.urls()}
		if err := os.CopyFS(filepath.Join(c.dir, "pki"), os.DirFS(filepath.Join(keys.dir, "pki"))); err != nil {
			t.Fatal(err)
		}
		all = append(all, c)
	}
	for _, c := range all {
		c.launch()
	}
	for _, c := range all {
		c.untilReady(time.Now())
	}
	untilServers(t, all[2], all...)
	all[0].kill()
	untilServers(t, all[2], all[1:]...)
	if err := all[1].process.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	untilServers(t, all[2], all[2])
}

// untilServers waits until default/kubernetes leads to the ports of exactly these servers, as one of them says.
func untilServers(t *testing.T, at *cluster, want ...*cluster) {
	t.Helper()
	began := time.Now()
	c := &outageClient{cluster: at, http: at.client()}
	defer c.http.CloseIdleConnections()
	var ports []string
	for _, w := range want {
		ports = append(ports, w.addr[strings.LastIndex(w.addr, ":")+1:])
	}
	slices.Sort(ports)
	for {
		text, err := c.try(t.Context(), http.MethodGet, "/api/v1/namespaces/default/endpoints/kubernetes", "")
		var got []string
		for _, part := range bytes.Split(text, []byte(`"port":`))[1:] {
			got = append(got, string(part[:bytes.IndexAny(part, ",}")]))
		}
		slices.Sort(got)
		if err == nil && slices.Equal(got, ports) {
			t.Logf("default/kubernetes leads to %d servers after %v", len(want), time.Since(began).Round(time.Millisecond))
			return
		}
		if time.Since(began) > 30*time.Second {
			t.Fatalf("default/kubernetes leads to %v, want %v: %s %v", got, ports, text, err)
		}
		time.Sleep(20 * time.Millisecond) // another process can only be polled
	}
}
