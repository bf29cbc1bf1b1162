package machine

import (
	"fmt"
	"testing"

	"proa.dev/network/service"
	"proa.dev/run"
)

// TestServiceProxySettings checks the health port of the service proxy and the ports that no Service gets.
func TestServiceProxySettings(t *testing.T) {
	p := &agentHost{NodeConfig: run.Default().Node}
	var c service.Config
	if p.traffic(&c); c.Health != ":10256" || c.Status != "127.0.0.1:10249" ||
		fmt.Sprint(c.ReservedPorts) != "[22 2379 2380 10250 8472 10256]" {
		t.Errorf("health at %q, %v are kept", c.Health, c.ReservedPorts)
	}
	p.Healthz = "off"
	if p.traffic(&c); c.Health != "" || fmt.Sprint(c.ReservedPorts) != "[22 2379 2380 10250 8472]" {
		t.Errorf("switched off: health at %q, %v are kept", c.Health, c.ReservedPorts)
	}
}
