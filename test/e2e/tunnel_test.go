package e2e

import (
	"strings"
	"testing"
)

// TestNodesBehindFirewall joins nodes that the server cannot reach: b is behind NAT, and c behind a firewall. Requests to their
// agents and Pods go through tunnels.
func TestNodesBehindFirewall(t *testing.T) {
	t.Parallel()
	bins := needNode(t)
	w := newRoutedNetwork(t, 19, "nft", "curl")
	err := w.sh(t.Context(), `nsenter --net=`+w.dir+`/router nft -f - <<END
table ip hides {
  chain forward { type filter hook forward priority 0; policy accept; ct state established,related accept; iifname "up" drop; }
  chain out { type nat hook postrouting priority 100; policy accept; iifname "to-b" oifname "up" masquerade; }
}
END`)
	if err != nil {
		t.Fatal(err)
	}
	// The server sees the address of the router instead of that of b, and is configured to allow nodes behind it.
	w.play(bins, "testdata/hidden", "--node-address-ranges", strings.TrimSuffix(w.machine, ".1")+".64/26")
}
