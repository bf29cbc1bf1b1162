package settings

import (
	"fmt"
	"strings"
	"testing"
)

// TestResourceManagerSettings checks that the settings of the CPU, memory and topology managers, of shutdown, logs, swap and
// images are parsed as kubelets parse them.
func TestResourceManagerSettings(t *testing.T) {
	c, err := Load("", Values{
		"cpu-manager-policy": {"static"}, "cpu-manager-policy-options": {"full-pcpus-only=true,strict-cpu-reservation=false"},
		"reserved-cpus":         {"0-1,4"},
		"memory-manager-policy": {"Static"}, "reserved-memory": {"0:memory=1Gi,hugepages-2Mi=4Mi;1:memory=512Mi"},
		"topology-manager-policy": {"single-numa-node"}, "topology-manager-scope": {"pod"},
		"shutdown-grace-period": {"60s"}, "shutdown-grace-period-critical-pods": {"20s"},
		"container-log-max-size": {"5Mi"}, "memory-swap-behavior": {"LimitedSwap"},
		"image-pull-credentials-verification-policy": {"AlwaysVerify"},
	})
	if err != nil {
		t.Fatal(err)
	}
	n := c.Node
	periods, err := n.ShutdownPeriods()
	got := fmt.Sprintf("%s %t %s %s %d %s %t %v %v", n.Align.CPUs, n.Align.Options.WholeCores, n.Align.ReservedCPUs, n.Align.Memory,
		n.Align.ReservedMemory[0]["hugepages-2Mi"]+n.Align.ReservedMemory[1]["memory"], n.Align.Policy, n.Align.WholePod, periods, err)
	if want := "static true 0-1,4 Static 541065216 single-numa-node true [{0 40} {2000000000 20}] <nil>"; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if n.LogSize != 5<<20 || !n.Swap || n.ImageVerify != "AlwaysVerify" {
		t.Errorf("got %+v", n)
	}
	n.ShutdownBy, err = parsePeriods([]string{"0=10"})
	if _, both := n.ShutdownPeriods(); err != nil || both == nil {
		t.Errorf("shutdown periods can be set in both ways at once: %v", err)
	}
}

func TestInvalidResourceManagerSettings(t *testing.T) {
	for flag, want := range map[string]string{
		"cpu-manager-policy=all":                          `"all" is none of none, static`,
		"cpu-manager-policy-options=align-by-socket=true": `"align-by-socket" is none of full-pcpus-only, strict-cpu-reservation`,
		"cpu-manager-policy-options=full-pcpus-only":      `"full-pcpus-only" is not NAME=true or NAME=false`,
		"reserved-cpus=a":                                 `"a" is no list of processors`,
		"reserved-memory=memory=1Gi":                      `"memory=1Gi" is not NODE:TYPE=AMOUNT,...`,
		"reserved-memory=0:memory=1Gi;0:memory=1Gi":       `the NUMA node 0 is named twice`,
		"reserved-memory=0:cpu=1":                         `"cpu=1" is not memory=AMOUNT or hugepages-SIZE=AMOUNT`,
		"topology-manager-policy=near":                    `unknown policy: "near"`,
		"shutdown-grace-period=soon":                      `"soon" is not a time of at least a second, such as 30s`,
		"shutdown-grace-period-by-pod-priority=high=10":   `"high=10" is not PRIORITY=SECONDS`,
		"container-log-max-files=1":                       `"1" is not a number of at least 2`,
		"memory-swap-behavior=much":                       `"much" is none of NoSwap, LimitedSwap`,
	} {
		name, value, _ := strings.Cut(flag, "=")
		if _, err := Load("", Values{name: {value}}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %s", flag, err, want)
		}
	}
}
