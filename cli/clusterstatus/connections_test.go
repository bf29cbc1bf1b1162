package clusterstatus

import (
	"strings"
	"testing"
)

// TestFullConnections checks that a share is reported when all listeners together have filled it.
func TestFullConnections(t *testing.T) {
	got := fullConnections([]byte(`# HELP proa_connections x
proa_connections{listener="api",state="unauthenticated"} 10
proa_connections{listener="kubelet-api",state="unauthenticated"} 6
proa_connections{listener="api",state="authenticated"} 19
proa_connections_closed_total{listener="api",state="unauthenticated"} 1.2e+06
proa_connections_limit{state="unauthenticated"} 16
proa_connections_limit{state="authenticated"} 20
proa_connections_limit{state="local"} 4
`))
	if len(got) != 1 || !strings.HasPrefix(got[0], "all 16 unauthenticated connections that the server may have are open; 1200000 were closed") {
		t.Errorf("got %q", got)
	}
}
