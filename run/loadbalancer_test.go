package run

import (
	"fmt"
	"strings"
	"testing"
)

// TestReservedPorts checks that the load balancer reserves the ports of the node's own services, also when settings change them.
func TestReservedPorts(t *testing.T) {
	s := &Server{Config: Default()}
	s.Listen, s.Node.Port = "0.0.0.0:7443", 11250
	p := s.loadBalancer()
	if p.Off || p.Name != "nodes" {
		t.Errorf("the provider is %+v", p)
	}
	if got := fmt.Sprintf("%v", p.Balancer); !strings.Contains(got, "7443 the API server") ||
		!strings.Contains(got, "11250 the node agent") || !strings.Contains(got, "22 SSH") {
		t.Errorf("reserved are %s", got)
	}
	s.LoadBalancer = "none"
	if !s.loadBalancer().Off {
		t.Error("it is not off")
	}
	// With a cloud provider the load balancers of nodes are off by default.
	s.LoadBalancer, s.Node.Cloud = "", true
	if !s.loadBalancer().Off {
		t.Error("it is not off in a cloud")
	}
	if s.LoadBalancer = "nodes"; s.loadBalancer().Off {
		t.Error("it is off though it was asked for")
	}
}
