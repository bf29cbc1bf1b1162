package lifecycle

import (
	"fmt"
	"os"

	"proa.dev/cli/localcluster"
	"proa.dev/run/settings"
)

// ownRanges is the type of machine.OwnRanges.
type ownRanges func(dataDir string) (pods, services string, needed bool)

// chooseRanges gives a new cluster with a node networks of its own if it cannot have the default ones, and returns the
// explanation for the user. Networks that the user has chosen, and those of a cluster that exists already, stay.
func chooseRanges(c localcluster.Cluster, values settings.Values, own ownRanges) (note string) {
	if values["node"] == nil || values["cluster-cidr"] != nil || values["service-cidr"] != nil {
		return ""
	}
	for _, sign := range []string{localcluster.SettingsFile, "pki"} {
		if _, err := os.Lstat(c.Path(sign)); err == nil {
			return ""
		}
	}
	pods, services, needed := own(c.Dir)
	if !needed {
		return ""
	}
	values["cluster-cidr"], values["service-cidr"] = []string{pods}, []string{services}
	return fmt.Sprintf("The usual networks are in use on this machine, by another cluster or otherwise; this one takes %s and %s.\n", pods, services)
}
