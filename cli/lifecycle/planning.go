package lifecycle

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"proa.dev/cli/command"
	"proa.dev/cli/localcluster"
	proa "proa.dev/run"
	"proa.dev/run/machine"
	"proa.dev/run/machine/teardown"
	"proa.dev/run/settings"
)

// contextFile has the context that was current in the user's kubeconfig before "proa up" changed it; "proa down" makes
// it current again.
const contextFile = "previous-context"

// nodesBefore returns the number of nodes with which the cluster was started the last time.
func (u *upCommandRun) nodesBefore() int {
	if n := u.stored["nodes"]; len(n) > 0 {
		if before, err := strconv.Atoi(n[len(n)-1]); err == nil {
			return before
		}
	}
	return 1
}

// refuseChanges returns an error that lists the settings which a running cluster would have to be stopped for. The
// number of nodes is not among them: for that the cluster is restarted, with nothing else changed.
func (u *upCommandRun) refuseChanges(c localcluster.Cluster, pid int, values settings.Values) error {
	if u.stored == nil {
		given := slices.Sorted(maps.Keys(u.given))
		if len(given) == 0 {
			return nil
		}
		return fmt.Errorf("the cluster in %s is already running (process %d), and \"proa up\" has not started it: it cannot apply --%s. Stop that process first",
			c.Dir, pid, strings.Join(given, ", --"))
	}
	names := slices.DeleteFunc(u.stored.Changes(values), func(name string) bool { return name == "nodes" && len(values[name]) > 0 })
	if len(names) == 0 {
		return nil
	}
	value := func(in settings.Values, name string) string {
		if len(in[name]) == 0 {
			return "not set"
		}
		return strings.Join(in[name], ",")
	}
	var all []string
	for _, name := range names {
		all = append(all, fmt.Sprintf("  --%s: it runs with %s, and you gave %s", name, value(u.stored, name), value(values, name)))
	}
	return fmt.Errorf("the cluster in %s is already running (process %d) with other settings:\n%s\nTo apply them, stop it first with \"proa down%s\" (--keep-containers leaves containers running), and then use \"proa up\" with the same flags again",
		c.Dir, pid, strings.Join(all, "\n"), c.CommandFlags())
}

// refuseLoss returns an error that lists the data which would be lost with nodes that are no longer wanted, unless the
// user has agreed to lose it.
func (u *upCommandRun) refuseLoss(ctx context.Context, c localcluster.Cluster, conf *proa.Config, running bool) error {
	lost, err := teardown.DataOfUnwanted(&conf.Config)
	if err != nil {
		return err
	}
	if u.removeData || len(lost) == 0 {
		return nil
	}
	var b strings.Builder
	for _, d := range lost {
		fmt.Fprintf(&b, "  node %s\n", d.Node)
		for _, v := range d.Volumes {
			fmt.Fprintf(&b, "    PersistentVolume %s%s\n", v, claimOf(ctx, c, running, v))
		}
		for _, v := range d.EmptyDirs {
			fmt.Fprintf(&b, "    emptyDir of Pod %s\n", v)
		}
	}
	return fmt.Errorf("with %s these volumes would be lost:\n%sNothing was changed. Add --remove-data to remove them, or give a larger number to keep them",
		command.Count(conf.Nodes, "node"), command.Printable(b.String()))
}

// claimOf names the claim to which a volume is bound, if the cluster runs.
func claimOf(ctx context.Context, c localcluster.Cluster, running bool, volume string) string {
	if !running {
		return ""
	}
	a, err := c.Access()
	if err != nil {
		return ""
	}
	body, err := a.GetOK(ctx, "/api/v1/persistentvolumes/"+volume)
	var pv corev1.PersistentVolume
	if err != nil || json.Unmarshal(body, &pv) != nil || pv.Spec.ClaimRef == nil {
		return ""
	}
	return fmt.Sprintf(" of the claim %s/%s", pv.Spec.ClaimRef.Namespace, pv.Spec.ClaimRef.Name)
}

// withoutNodes reports whether the cluster shall have no node: the user asks for that now, or has done so at the last
// start and asks for no node now. The settings of every other start name a node, or a number of simulated ones.
func (u *upCommandRun) withoutNodes(values settings.Values) bool {
	return u.noNode || u.stored != nil && values["node"] == nil && values["nodes"] == nil && values["simulate"] == nil
}

// nodes chooses nodes if the user has not: a node on this machine for root, or a simulated one for other users.
func (u *upCommandRun) nodes(values settings.Values) {
	if u.withoutNodes(values) {
		delete(values, "node")
		delete(values, "nodes")
		delete(values, "simulate")
		return
	}
	if os.Geteuid() != 0 && values["nodes"] != nil && values["node"] == nil {
		u.notes = append(u.notes, "Nodes that run containers need root, so these are simulated: Pods go through their phases, and no container runs.\n")
		values["simulate"] = values["nodes"]
		delete(values, "nodes")
		return
	}
	if values["node"] != nil || values["simulate"] != nil && values["nodes"] == nil {
		return
	}
	if os.Geteuid() == 0 {
		values["node"] = []string{settings.DefaultNodeName()}
		return
	}
	u.notes = append(u.notes, "A node needs root, so Pods will run on a simulated one: they go through their phases, and no container runs.\n"+
		"For real ones: sudo proa up. For none: proa up --no-node.\n")
	values["simulate"] = []string{"1"}
}

// plan returns the configuration of the cluster. It combines the settings of the last start, the config file and the
// flags, of which the later take precedence.
func (u *upCommandRun) plan(flags settings.Values) (proa.Config, settings.Values, error) {
	first, err := proa.Load(u.config, flags)
	if err != nil {
		return first, nil, err
	}
	for _, name := range []string{"node", "nodes", "simulate"} {
		if u.noNode && flags[name] != nil {
			return first, nil, fmt.Errorf("--no-node means a control plane alone, and --%s asks for nodes; choose one", name)
		}
	}
	if u.stored, err = (localcluster.Cluster{Dir: first.DataDir}).Settings(); err != nil {
		return first, nil, err
	}
	values := maps.Clone(u.stored)
	if values == nil {
		values = settings.Values{}
	}
	u.given = settings.Values{}
	if u.config != "" {
		data, err := os.ReadFile(u.config)
		if err != nil {
			return first, nil, err
		}
		inFile, err := settings.ParseFile(data)
		if err != nil {
			return first, nil, fmt.Errorf("%s: %w", u.config, err)
		}
		if err := inFile.Absolute(); err != nil {
			return first, nil, fmt.Errorf("%s: %w", u.config, err)
		}
		maps.Copy(u.given, inFile)
	}
	// The server has another working directory, and so may the next "proa up".
	if err := flags.Absolute(); err != nil {
		return first, nil, err
	}
	maps.Copy(u.given, flags)
	delete(u.given, "data-dir")
	maps.Copy(values, u.given)
	values["data-dir"] = []string{first.DataDir}
	u.nodes(values)
	note, err := planRanges(localcluster.Cluster{Dir: first.DataDir}, values, thisMachine())
	if err != nil {
		return first, nil, err
	}
	if note != "" {
		u.notes = append(u.notes, note)
	}
	conf, err := proa.Load("", values)
	if err == nil && values["node"] != nil {
		// a new cluster that starts at the same time takes others
		machine.ReserveRanges(slices.Concat(conf.ClusterCIDRs(), conf.ServiceCIDRs))
	}
	return conf, values, err
}

// writeSettings writes the settings into the data folder, where the server and the next "proa up" read them.
func writeSettings(c localcluster.Cluster, values settings.Values) error {
	if err := os.MkdirAll(c.Dir, 0o700); err != nil {
		return fmt.Errorf("make the data folder: %w", err)
	}
	data, err := values.Format()
	if err != nil {
		return err
	}
	return command.ReplaceFile(c.Path(localcluster.SettingsFile),
		append([]byte("# What \"proa up\" last started this cluster with.\n"), data...))
}
