package lifecycle

import (
	"fmt"
	"os"
	"slices"
	"strings"

	"proa.dev/cli/localcluster"
	"proa.dev/run/settings"
)

// ownRanges is the type of machine.OwnRanges.
type ownRanges func(dataDir string) (pods, services string, needed bool)

// chooseRanges gives a new cluster with a node networks of its own if it cannot have the default ones, and returns the
// explanation for the user. Networks that the user has chosen, and those of a cluster that exists already, stay.
func chooseRanges(c localcluster.Cluster, values settings.Values, own ownRanges) (note string) {
	if values["node"] == nil {
		return ""
	}
	for _, sign := range []string{localcluster.SettingsFile, "pki"} {
		if _, err := os.Lstat(c.Path(sign)); err == nil {
			return ""
		}
	}
	pods, services := values["cluster-cidr"], values["service-cidr"]
	if pods != nil && services != nil || !isIPv4(pods) || !isIPv4(services) {
		return ""
	}
	ownPods, ownServices, needed := own(c.Dir)
	if !needed {
		return ""
	}
	var chosen []string
	if pods == nil {
		values["cluster-cidr"] = []string{ownPods}
		chosen = append(chosen, ownPods)
	}
	if services == nil {
		values["service-cidr"] = []string{ownServices}
		chosen = append(chosen, ownServices)
	}
	return fmt.Sprintf("The usual networks are in use on this machine, by another cluster or otherwise; this one takes %s.\n", strings.Join(chosen, " and "))
}

// isIPv4 reports whether networks that the user has chosen are of IPv4 only, or none are chosen: the networks of Pods and of Services
// must be of the same families.
func isIPv4(networks []string) bool {
	return !slices.ContainsFunc(networks, func(text string) bool { return strings.Contains(text, ":") })
}
