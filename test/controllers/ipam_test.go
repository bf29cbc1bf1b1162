package controllers

import (
	"testing"

	"proa.dev/control/controltest"
	"proa.dev/control/ipam"
)

// TestIPAM runs with a range for four nodes.
func TestIPAM(t *testing.T) {
	t.Parallel()
	ranges, err := ipam.Parse([]string{"10.244.0.0/22", "fd00:244::/56"}, 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	controltest.Scripts(t, "../../control/ipam/testdata/scripts/*.txt", ipam.Controller(ranges))
	// with an empty pool, which determines the order
	controltest.Scripts(t, "../../control/ipam/testdata/both/*.txt", ipam.Controller(ranges))
}
