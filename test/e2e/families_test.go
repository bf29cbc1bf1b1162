package e2e

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

// TestFamilies runs clusters of two nodes with dual-stack and with IPv6-only networks.
func TestFamilies(t *testing.T) {
	t.Parallel()
	bins := needNode(t)
	tools := archives(t, "tool", "busybox")
	for families, name := range map[string]string{"4 6": "dual", "6": "six"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := newMachine(t, bins, "--nodes", "2")
			block := rand.IntN(1 << 16)
			for flag, six := range map[string]string{
				"--cluster-cidr": fmt.Sprintf("fd98:%x:1::/56", block), "--service-cidr": fmt.Sprintf("fd98:%x:2::/112", block),
			} {
				at := slices.Index(m.args, flag) + 1
				if families == "6" {
					m.args[at] = six
				} else {
					m.args[at] += "," + six
				}
			}
			m.up()
			m.load(tools)
			for _, path := range scripts(t, "testdata/families") {
				m.script(t, path, map[string]string{"FAMILIES": families}).run()
			}
		})
	}
}
