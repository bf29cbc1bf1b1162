package ipam_test

import (
	"testing"

	"proa.dev/control/controltest"
	"proa.dev/control/ipam"
)

// TestScripts runs with room for four nodes.
func TestScripts(t *testing.T) {
	ranges, err := ipam.Parse([]string{"10.244.0.0/22", "fd00:244::/56"}, 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	controltest.Scripts(t, "testdata/scripts/*.txt", ipam.Controller(ranges))
	controltest.Scripts(t, "testdata/both/*.txt", ipam.Controller(ranges)) // with a fresh memory, which decides on the order
}
