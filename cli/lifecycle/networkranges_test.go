package lifecycle

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"proa.dev/cli/localcluster"
	"proa.dev/run/machine"
	"proa.dev/run/machine/nodefolder"
	"proa.dev/run/settings"
)

// testNetworks is a machine on which some networks are in use.
type testNetworks struct {
	taken    []netip.Prefix
	pods     string // what proa chooses for Pods; empty if the default is free
	services string
	noneFree bool
	reserved []netip.Prefix
}

func (n *testNetworks) use() networkUse {
	return networkUse{
		own: func(_ string, given machine.GivenRanges) (pods, services string, err error) {
			if n.noneFree {
				return "", "", errors.New("no free ones were found")
			}
			if len(given.Pods) == 0 {
				pods = n.pods
			}
			if len(given.Services) == 0 {
				services = n.services
			}
			return pods, services, nil
		},
		user: func(_ string, networks []netip.Prefix) string {
			for _, t := range n.taken {
				if slices.ContainsFunc(networks, t.Overlaps) {
					return "the cluster in /other, which has " + t.String()
				}
			}
			return ""
		},
		reserve: func(networks []netip.Prefix) bool { n.reserved = append(n.reserved, networks...); return true },
	}
}

// existingCluster returns a cluster that "proa up" has started before, without a node or with one.
func existingCluster(t *testing.T, withNode bool) localcluster.Cluster {
	t.Helper()
	c := localcluster.Cluster{Dir: t.TempDir()}
	if err := os.WriteFile(c.Path(localcluster.SettingsFile), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if withNode {
		if err := os.MkdirAll(nodefolder.RuntimeDir(c.Dir), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	return c
}

// TestUpChoosesFreeNetworks checks that a new cluster with a node gets other networks if the default ones are in use. Networks that
// the user has chosen, and those of an existing cluster, are not changed.
func TestUpChoosesFreeNetworks(t *testing.T) {
	inUse, free := &testNetworks{pods: "10.130.0.0/16", services: "10.194.0.0/16"}, &testNetworks{}
	fresh := localcluster.Cluster{Dir: t.TempDir()}
	for _, c := range []struct {
		name   string
		in     localcluster.Cluster
		values settings.Values
		on     *testNetworks
		want   string
	}{
		{"--node", fresh, settings.Values{"node": {"a"}}, inUse, "[10.130.0.0/16] [10.194.0.0/16]"},
		{"--nodes", fresh, settings.Values{"node": {"a"}, "nodes": {"2"}}, inUse, "[10.130.0.0/16] [10.194.0.0/16]"},
		{"nothing is in use", fresh, settings.Values{"node": {"a"}}, free, "[] []"},
		{"no node", fresh, settings.Values{"simulate": {"1"}}, inUse, "[] []"},
		{"chosen by the user", fresh, settings.Values{"node": {"a"}, "cluster-cidr": {"10.9.0.0/16"}, "service-cidr": {"10.8.0.0/16"}}, inUse, "[10.9.0.0/16] [10.8.0.0/16]"},
		{"one chosen by the user", fresh, settings.Values{"node": {"a"}, "cluster-cidr": {"10.9.0.0/16"}}, inUse, "[10.9.0.0/16] [10.194.0.0/16]"},
		{"the other one", fresh, settings.Values{"node": {"a"}, "service-cidr": {"10.9.0.0/16"}}, inUse, "[10.130.0.0/16] [10.9.0.0/16]"},
		{"IPv6", fresh, settings.Values{"node": {"a"}, "cluster-cidr": {"10.9.0.0/16,fd00::/56"}}, inUse, "[10.9.0.0/16,fd00::/56] []"},
		{"the cluster exists", existingCluster(t, true), settings.Values{"node": {"a"}}, inUse, "[] []"},
		{"the cluster exists without a node", existingCluster(t, false), settings.Values{"node": {"a"}}, inUse, "[] []"},
	} {
		before := len(c.values)
		note, err := planRanges(c.in, c.values, c.on.use())
		if got := fmt.Sprint(c.values["cluster-cidr"], c.values["service-cidr"]); err != nil || got != c.want {
			t.Errorf("%s: %s, want %s; %v", c.name, got, c.want, err)
		}
		if chosen := len(c.values) > before; chosen != (note != "") {
			t.Errorf("%s: the note for the user is %q", c.name, note)
		}
	}
	if _, err := planRanges(fresh, settings.Values{"node": {"a"}}, (&testNetworks{noneFree: true}).use()); err == nil {
		t.Error("a cluster starts although no network is free")
	}
}

// TestUpRefusesNetworksInUse checks that a cluster does not get its first node with networks that another cluster or the machine uses.
func TestUpRefusesNetworksInUse(t *testing.T) {
	on := &testNetworks{taken: []netip.Prefix{netip.MustParsePrefix("10.244.0.0/16"), netip.MustParsePrefix("10.96.0.0/16")}}
	fresh := localcluster.Cluster{Dir: t.TempDir()}
	for _, c := range []struct {
		name   string
		in     localcluster.Cluster
		values settings.Values
		want   string // empty if it is accepted
	}{
		{"Pods", fresh, settings.Values{"node": {"a"}, "cluster-cidr": {"10.244.0.0/17"}},
			"--cluster-cidr 10.244.0.0/17 is in use on this machine, by the cluster in /other, which has 10.244.0.0/16. Nothing was started; leave the flag out"},
		{"Services", fresh, settings.Values{"node": {"a"}, "cluster-cidr": {"10.9.0.0/16"}, "service-cidr": {"10.96.0.0/12"}}, "--service-cidr 10.96.0.0/12 is in use"},
		{"one of two", fresh, settings.Values{"node": {"a"}, "cluster-cidr": {"10.244.0.0/16,fd00::/56"}, "service-cidr": {"10.9.0.0/16,fd01::/112"}}, "--cluster-cidr 10.244.0.0/16,fd00::/56"},
		{"each other", fresh, settings.Values{"node": {"a"}, "cluster-cidr": {"10.9.0.0/16"}, "service-cidr": {"10.9.0.0/24"}},
			"--cluster-cidr 10.9.0.0/16 and --service-cidr 10.9.0.0/24 overlap"},
		{"a network of another CNI plugin", fresh, settings.Values{"node": {"a"}, "cni-conf-dir": {"/c"}, "cluster-cidr": {"10.244.0.0/16"}}, ""},
		{"no node", fresh, settings.Values{"simulate": {"1"}, "cluster-cidr": {"10.244.0.0/16"}}, ""},
		{"the cluster has a node already", existingCluster(t, true), settings.Values{"node": {"a"}, "cluster-cidr": {"10.244.0.0/16"}}, ""},
		{"the first node of a cluster", existingCluster(t, false), settings.Values{"node": {"a"}}, "so it cannot have a node here"},
		{"the first node of a cluster with other networks", existingCluster(t, false),
			settings.Values{"node": {"a"}, "cluster-cidr": {"10.9.0.0/16"}, "service-cidr": {"10.8.0.0/16"}}, ""},
	} {
		_, err := planRanges(c.in, c.values, on.use())
		if (err != nil) != (c.want != "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
	}
	on.reserved = nil
	_, err := planRanges(fresh, settings.Values{"node": {"a"}, "cluster-cidr": {"10.9.0.0/16"}}, on.use())
	if err != nil || fmt.Sprint(on.reserved) != "[10.9.0.0/16]" {
		t.Errorf("%v is reserved, %v", on.reserved, err)
	}
}

// TestImagesAreNoNode checks that image archives that wait for the first node do not make a cluster one that has had a node.
func TestImagesAreNoNode(t *testing.T) {
	dir := t.TempDir()
	for _, step := range []struct {
		folder string
		want   bool
	}{{dir, false}, {nodefolder.ImageDir(dir), false}, {filepath.Join(nodefolder.AgentDir(dir), "pki"), true}} {
		if err := os.MkdirAll(step.folder, 0o700); err != nil {
			t.Fatal(err)
		}
		if got := hasHadNode(dir); got != step.want {
			t.Errorf("with %s: %v", step.folder, got)
		}
	}
}
