package lifecycle

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"proa.dev/cli/command"
	"proa.dev/cli/localcluster"
	proa "proa.dev/run"
	"proa.dev/run/datafolder"
	"proa.dev/run/machine"
	"proa.dev/run/machine/nodefolder"
	"proa.dev/run/settings"
)

// networkUse is what planRanges asks about the networks that are in use on this machine.
type networkUse struct {
	// own is machine.OwnRanges.
	own func(dataDir string, given machine.GivenRanges) (pods, services string, err error)
	// user describes what uses addresses of one of the networks; empty if nothing does.
	user func(dataDir string, networks []netip.Prefix) string
	// reserve is machine.ReserveRanges.
	reserve func([]netip.Prefix) bool
}

// thisMachine returns the networks in use on this machine.
func thisMachine() networkUse {
	return networkUse{own: machine.OwnRanges, user: rangeUser, reserve: machine.ReserveRanges}
}

// planRanges makes sure that a cluster that gets its first node on this machine shares no network with another cluster
// or with the machine. A new cluster gets networks of its own if it cannot have the default ones, and the note explains
// that to the user. Networks that cannot be changed, because the user has given them or because the cluster exists, are
// refused if they are in use. A cluster that has had a node stays as it is.
func planRanges(c localcluster.Cluster, values settings.Values, use networkUse) (note string, err error) {
	if values["node"] == nil || hasHadNode(c.Dir) {
		return "", nil
	}
	if pid, err := c.ServerPID(); err == nil && pid != 0 {
		return "", nil // a running cluster gets no first node
	}
	conf, err := proa.Load("", values)
	if err != nil {
		return "", err
	}
	isNew := !command.FileExists(c.Path(localcluster.SettingsFile)) && !command.FileExists(c.Path("pki"))
	pods, services := values["cluster-cidr"], values["service-cidr"]
	choose := isNew && (pods == nil || services == nil) && isIPv4(pods) && isIPv4(services)
	var fixed machine.GivenRanges
	if !choose || pods != nil {
		fixed.Pods = conf.ClusterCIDRs()
	}
	if !choose || services != nil {
		fixed.Services = conf.ServiceCIDRs
	}
	foreignPods := values["cni-conf-dir"] != nil // the Pods have a network of the user, which may exist already
	if err := refuseRanges(c, fixed, use, refusal{isNew: isNew, foreignPods: foreignPods}); err != nil || !choose {
		return "", err
	}
	ownPods, ownServices, err := use.own(c.Dir, fixed)
	if err != nil {
		return "", err
	}
	var chosen []string
	if ownPods != "" {
		values["cluster-cidr"] = []string{ownPods}
		chosen = append(chosen, ownPods)
	}
	if ownServices != "" {
		values["service-cidr"] = []string{ownServices}
		chosen = append(chosen, ownServices)
	}
	if len(chosen) == 0 {
		return "", nil
	}
	return fmt.Sprintf("The usual networks are in use on this machine, by another cluster or otherwise; this one takes %s.\n", strings.Join(chosen, " and ")), nil
}

// refusal says what to check about networks that cannot be changed, and what to advise if they are in use.
type refusal struct {
	isNew       bool // the cluster does not exist yet
	foreignPods bool // another program makes the network of Pods
}

// refuseRanges returns an error if networks overlap each other or are in use, and otherwise reserves them.
func refuseRanges(c localcluster.Cluster, fixed machine.GivenRanges, use networkUse, r refusal) error {
	for _, p := range fixed.Pods {
		if at := slices.IndexFunc(fixed.Services, p.Overlaps); at >= 0 {
			return fmt.Errorf("--cluster-cidr %s and --service-cidr %s overlap: Pods and Services need addresses of their own. "+
				"Nothing was started; choose another range, or leave one of the flags out", p, fixed.Services[at])
		}
	}
	checks := []struct {
		flag     string
		networks []netip.Prefix
	}{{"cluster-cidr", fixed.Pods}, {"service-cidr", fixed.Services}}
	if r.foreignPods {
		checks = checks[1:]
	}
	for _, check := range checks {
		user := use.user(c.Dir, check.networks)
		if user == "" && !use.reserve(check.networks) {
			user = "another cluster that is just starting"
		}
		switch {
		case user == "":
		case r.isNew:
			return fmt.Errorf("--%s %s is in use on this machine, by %s. Nothing was started; leave the flag out, and proa chooses a free range, or choose another one",
				check.flag, joinRanges(check.networks), user)
		default:
			return fmt.Errorf("the cluster in %s has the range %s (--%s), which is in use on this machine, by %s; so it cannot have a node here. "+
				"Remove what uses the range, or create a new cluster in another folder: proa chooses a free range for it", c.Dir, joinRanges(check.networks), check.flag, user)
		}
	}
	return nil
}

func joinRanges(networks []netip.Prefix) string {
	var out []string
	for _, n := range networks {
		out = append(out, n.String())
	}
	return strings.Join(out, ",")
}

// hasHadNode reports whether a node has run in the data folder. Image archives may be put there before that.
func hasHadNode(dataDir string) bool {
	entries, err := os.ReadDir(nodefolder.AgentDir(dataDir))
	if errors.Is(err, os.ErrNotExist) {
		return false
	}
	return err != nil || slices.ContainsFunc(entries, func(e os.DirEntry) bool {
		return e.Name() != filepath.Base(nodefolder.ImageDir(dataDir))
	})
}

// rangeUser describes what uses addresses of one of the networks: another cluster that has a node on this machine, or
// the machine itself. It is empty if nothing does.
func rangeUser(dataDir string, networks []netip.Prefix) string {
	known, err := datafolder.Known()
	if err != nil {
		known = nil // the addresses of the machine tell as well, with less detail
	}
	for _, dir := range known {
		other := localcluster.Cluster{Dir: dir}
		if dir == dataDir || !machine.HasPodBridge(dir) {
			continue
		}
		conf, found, err := other.Config()
		if err != nil || !found || conf.Node.Name == "" {
			continue
		}
		for _, taken := range slices.Concat(conf.ClusterCIDRs(), conf.ServiceCIDRs) {
			if slices.ContainsFunc(networks, taken.Overlaps) {
				return fmt.Sprintf("the cluster in %s, which has %s", dir, taken)
			}
		}
	}
	return machine.RangeUser(dataDir, networks)
}

// isIPv4 reports whether networks that the user has chosen are of IPv4 only, or none are chosen: the networks of Pods and of Services
// must be of the same families.
func isIPv4(networks []string) bool {
	return !slices.ContainsFunc(networks, func(text string) bool { return strings.Contains(text, ":") })
}
