package cli

import (
	"fmt"
	"os"

	proa "proa.dev/run"
)

// ownRanges is machine.OwnRanges.
type ownRanges func(dataDir string) (pods, services string, needed bool)

// chooseRanges gives a new cluster with a node networks of its own where it cannot have the usual ones, and returns what the user is
// told about it. Networks that somebody has chosen stay, and so do those of a cluster that is there already.
func chooseRanges(c cluster, said proa.Said, own ownRanges) (note string) {
	if said["node"] == nil || said["cluster-cidr"] != nil || said["service-cidr"] != nil {
		return ""
	}
	for _, sign := range []string{settingsFile, "pki"} {
		if _, err := os.Lstat(c.file(sign)); err == nil {
			return ""
		}
	}
	pods, services, needed := own(c.dir)
	if !needed {
		return ""
	}
	said["cluster-cidr"], said["service-cidr"] = []string{pods}, []string{services}
	return fmt.Sprintf("The usual networks are in use on this machine, by another cluster or otherwise; this one takes %s and %s.\n", pods, services)
}
