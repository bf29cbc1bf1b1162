package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	proa "proa.dev/run"
	"proa.dev/run/machine"
)

// settingsFile keeps what a cluster was started with.
const settingsFile = "server.yaml"

// contextFile names the context that was current in the user's kubeconfig before "proa up" made its own so; "proa down" makes it current
// again.
const contextFile = "previous-context"

// settings are what "proa up" has last started the cluster with; nil if it has not.
func (c cluster) settings() (proa.Said, error) {
	data, err := os.ReadFile(c.file(settingsFile))
	switch {
	case errors.Is(err, os.ErrNotExist):
		return nil, nil
	case errors.Is(err, os.ErrPermission):
		return nil, c.noRights()
	case err != nil:
		return nil, err
	}
	said, err := proa.ParseFile(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", c.file(settingsFile), err)
	}
	return said, nil
}

// config is what "proa up" has last started the cluster with, and whether it has.
func (c cluster) config() (conf proa.Config, found bool, err error) {
	said, err := c.settings()
	if err != nil || said == nil {
		return conf, false, err
	}
	if conf, err = proa.Load("", said); err != nil {
		return conf, false, fmt.Errorf("%s: %w", c.file(settingsFile), err)
	}
	return conf, true, nil
}

// nodesBefore is the number of nodes that the cluster was started with the last time.
func (u *upper) nodesBefore() int {
	if n := u.stored["nodes"]; len(n) > 0 {
		if before, err := strconv.Atoi(n[len(n)-1]); err == nil {
			return before
		}
	}
	return 1
}

// refuseChanges says which settings a running cluster would have to be stopped for. For another number of nodes it is started again, with
// nothing else changed.
func (u *upper) refuseChanges(c cluster, pid int, said proa.Said) error {
	if u.stored == nil {
		given := slices.Sorted(maps.Keys(u.given))
		if len(given) == 0 {
			return nil
		}
		return fmt.Errorf("the cluster in %s is already running (process %d), and \"proa up\" has not started it: it cannot apply --%s. Stop that process first",
			c.dir, pid, strings.Join(given, ", --"))
	}
	names := slices.DeleteFunc(u.stored.Changes(said), func(name string) bool { return name == "nodes" && len(said[name]) > 0 })
	if len(names) == 0 {
		return nil
	}
	value := func(in proa.Said, name string) string {
		if len(in[name]) == 0 {
			return "not set"
		}
		return strings.Join(in[name], ",")
	}
	var all []string
	for _, name := range names {
		all = append(all, fmt.Sprintf("  --%s: it runs with %s, you say %s", name, value(u.stored, name), value(said, name)))
	}
	return fmt.Errorf("the cluster in %s is already running (process %d) with other settings:\n%s\nTo apply them, stop it first with \"proa down%s\" (--keep-containers leaves containers running), and say \"proa up\" with the same flags again",
		c.dir, pid, strings.Join(all, "\n"), c.flags())
}

// refuseLoss names what would be lost with nodes that are no longer wanted, unless the user has agreed to lose it.
func (u *upper) refuseLoss(ctx context.Context, c cluster, conf *proa.Config, running bool) error {
	lost, err := machine.DataOfUnwanted(conf)
	if err != nil {
		return err
	}
	if u.removeData {
		return machine.AllowDataRemoval(conf)
	}
	if len(lost) == 0 {
		return nil
	}
	var b strings.Builder
	for _, d := range lost {
		fmt.Fprintf(&b, "  node %s\n", d.Node)
		for _, v := range d.Volumes {
			fmt.Fprintf(&b, "    PersistentVolume %s%s\n", v, c.claimOf(ctx, running, v))
		}
		for _, v := range d.EmptyDirs {
			fmt.Fprintf(&b, "    emptyDir of Pod %s\n", v)
		}
	}
	return fmt.Errorf("with %s these volumes would be lost:\n%sNothing was changed. Say --remove-data to remove them, or a larger number to keep them",
		count(conf.Nodes, "node"), plain(b.String()))
}

// claimOf names the claim that a volume is bound to, as far as somebody can be asked.
func (c cluster) claimOf(ctx context.Context, running bool, volume string) string {
	if !running {
		return ""
	}
	a, err := c.access()
	if err != nil {
		return ""
	}
	body, err := a.ok(ctx, "/api/v1/persistentvolumes/"+volume)
	var pv corev1.PersistentVolume
	if err != nil || json.Unmarshal(body, &pv) != nil || pv.Spec.ClaimRef == nil {
		return ""
	}
	return fmt.Sprintf(" of the claim %s/%s", pv.Spec.ClaimRef.Namespace, pv.Spec.ClaimRef.Name)
}

// nodes decides what Pods shall run on where nobody has said it: a node on this machine, or simulated ones for who is not
// root.
func (u *upper) nodes(said proa.Said) {
	if u.noNode {
		delete(said, "node")
		delete(said, "nodes")
		delete(said, "simulate")
		return
	}
	if os.Geteuid() != 0 && said["nodes"] != nil && said["node"] == nil {
		u.notes = append(u.notes, "Nodes that run containers need root, so these are simulated: Pods go through their phases, and no container runs.\n")
		said["simulate"] = said["nodes"]
		delete(said, "nodes")
		return
	}
	if said["node"] != nil || said["simulate"] != nil && said["nodes"] == nil {
		return
	}
	if os.Geteuid() == 0 {
		said["node"] = []string{proa.DefaultNodeName()}
		return
	}
	u.notes = append(u.notes, "A node needs root, so Pods will run on a simulated one: they go through their phases, and no container runs.\n"+
		"For real ones: sudo proa up. For none: proa up --no-node.\n")
	said["simulate"] = []string{"1"}
}

// settle finds out what the cluster should be like: what it was started with before, the config file, and the flags, each
// stronger than the one before.
func (u *upper) settle(flags proa.Said) (proa.Config, proa.Said, error) {
	first, err := proa.Load(u.config, flags)
	if err != nil {
		return first, nil, err
	}
	if u.stored, err = (cluster{first.DataDir}).settings(); err != nil {
		return first, nil, err
	}
	said := maps.Clone(u.stored)
	if said == nil {
		said = proa.Said{}
	}
	u.given = proa.Said{}
	if u.config != "" {
		data, err := os.ReadFile(u.config)
		if err != nil {
			return first, nil, err
		}
		inFile, err := proa.ParseFile(data)
		if err != nil {
			return first, nil, fmt.Errorf("%s: %w", u.config, err)
		}
		if err := inFile.Absolute(); err != nil {
			return first, nil, fmt.Errorf("%s: %w", u.config, err)
		}
		maps.Copy(u.given, inFile)
	}
	// The server runs in another folder, and so may the next "up".
	if err := flags.Absolute(); err != nil {
		return first, nil, err
	}
	maps.Copy(u.given, flags)
	delete(u.given, "data-dir")
	maps.Copy(said, u.given)
	said["data-dir"] = []string{first.DataDir}
	u.nodes(said)
	if note := chooseRanges(cluster{first.DataDir}, said, machine.OwnRanges); note != "" {
		u.notes = append(u.notes, note)
	}
	conf, err := proa.Load("", said)
	if err == nil && said["node"] != nil {
		machine.ReserveRanges(slices.Concat(conf.ClusterCIDRs(), conf.ServiceCIDRs)) // so that a new cluster that starts now takes others
	}
	return conf, said, err
}

// remember writes the settings into the data folder, where the server and the next "up" read them.
func remember(c cluster, said proa.Said) error {
	if err := os.MkdirAll(c.dir, 0o700); err != nil {
		return fmt.Errorf("make the data folder: %w", err)
	}
	data, err := said.Format()
	if err != nil {
		return err
	}
	return replaceFile(c.file(settingsFile), append([]byte("# What \"proa up\" last started this cluster with.\n"), data...))
}
