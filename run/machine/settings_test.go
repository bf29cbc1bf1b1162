package machine

import (
	"fmt"
	"testing"

	"proa.dev/network/service"
	"proa.dev/run"
)

// TestTraffic is what the service proxy is told: without settings the usual port, and ports that no Service gets.
func TestTraffic(t *testing.T) {
	p := &place{NodeConfig: run.Default().Node}
	var c service.Config
	if p.traffic(&c); c.Health != ":10256" || fmt.Sprint(c.Kept) != "[22 2379 2380 10250 8472 10256]" {
		t.Errorf("health at %q, %v are kept", c.Health, c.Kept)
	}
	p.Healthz = "off"
	if p.traffic(&c); c.Health != "" || fmt.Sprint(c.Kept) != "[22 2379 2380 10250 8472]" {
		t.Errorf("switched off: health at %q, %v are kept", c.Health, c.Kept)
	}
}
