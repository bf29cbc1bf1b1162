package e2e

import (
	"strings"
	"testing"
)

// TestHiddenNodes joins nodes that the server cannot reach: b is behind a router that translates its address, c behind one that
// lets nobody in. What needs the agents and Pods there goes through tunnels.
func TestHiddenNodes(t *testing.T) {
	t.Parallel()
	bins := needNode(t)
	w := newWorld(t, 19, "nft", "curl")
	err := w.sh(t.Context(), `nsenter --net=`+w.dir+`/router nft -f - <<END
table ip hides {
  chain forward { type filter hook forward priority 0; policy accept; ct state established,related accept; iifname "up" drop; }
  chain out { type nat hook postrouting priority 100; policy accept; iifname "to-b" oifname "up" masquerade; }
}
END`)
	if err != nil {
		t.Fatal(err)
	}
	// The server sees the router in place of b, and is told that there are nodes behind it.
	w.play(bins, "testdata/hidden", "--node-address-ranges", strings.TrimSuffix(w.machine, ".1")+".64/26")
}
