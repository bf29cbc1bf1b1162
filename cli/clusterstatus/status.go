// Package clusterstatus is the command "proa status": it collects what the data folder, the API server and the nodes of
// this machine report about a cluster.
package clusterstatus

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"net/http"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"proa.dev/cli/command"
	"proa.dev/cli/localcluster"
	proa "proa.dev/run"
	"proa.dev/run/datafolder"
	"proa.dev/why/answer"
)

// StatusCommand returns the command "proa status".
func StatusCommand() command.Command {
	return command.Command{
		Name: "status", Short: "show whether each part of the cluster works",
		Long: `
Shows the process, each check of the API server, each node, the size of the store, the number of objects and the next
certificate to expire, and whatever does not work: a part of the server or of a node that has failed, a node that is short of
disk space or memory or is not heard of, Pods that were evicted in the last hour, a controller that keeps failing for an object, a node of this machine on which the cluster's DNS or the Service of the API server does not answer.
The exit code is 0 if everything works and 1 if something does not.`,
		Setup: func(flags *flag.FlagSet) func(context.Context, *command.Env, []string) error {
			which := localcluster.AnyDataDirFlag(flags)
			format := command.OutputFlag(flags)
			return func(ctx context.Context, env *command.Env, args []string) error {
				if err := command.NoArguments("status", args); err != nil {
					return err
				}
				output, err := format()
				if err != nil {
					return err
				}
				c, err := which()
				if err != nil {
					return err
				}
				s := Inspect(ctx, c)
				if err := s.print(env, output); err != nil {
					return err
				}
				if !s.Ready || len(s.Problems) > 0 {
					return command.ExitCode(1)
				}
				return nil
			}
		},
	}
}

// Status is what is known about a cluster.
type Status struct {
	DataDir      string                     `json:"dataDir"`
	Running      bool                       `json:"running"`
	Ready        bool                       `json:"ready"`
	PID          int                        `json:"pid,omitempty"`
	Agent        string                     `json:"agent,omitempty"` // the node, if the folder is that of an agent alone
	MemoryBytes  int64                      `json:"memoryBytes,omitempty"`
	Agents       []agentProcess             `json:"agents,omitempty"`
	Server       string                     `json:"server,omitempty"`
	Version      string                     `json:"version,omitempty"`
	Build        string                     `json:"build,omitempty"` // of the program that runs the server
	Checks       []localcluster.Check       `json:"checks,omitempty"`
	StoreBytes   int64                      `json:"storeBytes,omitempty"`
	DiskFree     int64                      `json:"diskFreeBytes,omitempty"`
	Objects      map[string]int             `json:"objects,omitempty"`
	Failing      []proa.Failing             `json:"failing,omitempty"`
	Nodes        []nodeStatus               `json:"nodes,omitempty"`
	MoreNodes    int64                      `json:"moreNodes,omitempty"`
	Certificates []localcluster.Certificate `json:"certificates,omitempty"`
	Problems     []string                   `json:"problems,omitempty"`

	unreadable bool // the folder belongs to another user, so nothing is known
}

// Inspect collects what is known about a cluster. What cannot be found out becomes a problem, and the rest is shown
// nevertheless.
func Inspect(ctx context.Context, c localcluster.Cluster) *Status {
	s := &Status{DataDir: c.Dir}
	problem := func(err error) bool {
		if err != nil {
			s.Problems = append(s.Problems, err.Error())
		}
		return err != nil
	}
	if err := c.Exists(); problem(err) {
		s.unreadable = errors.Is(err, localcluster.ErrNoRights)
		return s
	}
	pid, err := c.ServerPID()
	problem(err)
	s.PID, s.Running = pid, pid != 0
	mark, err := datafolder.ReadVersion(c.Dir)
	problem(err)
	s.Build = mark.Build
	if cert, agent, err := localcluster.AgentCertificate(c); agent {
		problem(err)
		s.inspectAgent(c, cert)
		return s
	}
	s.StoreBytes, s.DiskFree = folderSize(c.Path("etcd")), diskFree(c.Dir)
	if certs, err := localcluster.Certificates(c); !problem(err) {
		s.Certificates = certs
		for _, cert := range certs {
			if time.Until(cert.Expires) <= 0 && cert.CA == cert.Signs { // one that is only trusted may have expired
				problem(fmt.Errorf("certificate %s expired on %s; a restart renews it", cert.Name, cert.Expires.Format(time.DateOnly)))
			}
		}
	}
	s.Agents, err = agentsOf(c)
	problem(err)
	if !s.Running {
		problem(notRunning(c))
		return s
	}
	s.MemoryBytes = residentMemory(pid)
	if a, err := c.Access(); !problem(err) {
		s.Server = a.Server()
		problem(s.ask(ctx, a))
		problem(s.tryNodes(ctx, c, a))
	}
	s.Ready = s.Ready && len(s.Problems) == 0
	return s
}

// inspectAgent collects what the folder of a node's agent tells. Whether the node is ready is known to its cluster alone.
func (s *Status) inspectAgent(c localcluster.Cluster, cert localcluster.Certificate) {
	s.Agent, s.DiskFree = strings.TrimPrefix(cert.Subject, "system:node:"), diskFree(c.Dir)
	if s.Agent == "" {
		s.Agent = "unknown"
	} else {
		cert.Name = "client certificate of the node"
		s.Certificates = []localcluster.Certificate{cert}
		if time.Until(cert.Expires) <= 0 {
			s.Problems = append(s.Problems, fmt.Sprintf("the client certificate of the node expired on %s: join again with a token that \"proa token create --node %s\" makes on the server",
				cert.Expires.Format(time.DateOnly), s.Agent))
		}
	}
	if !s.Running {
		s.Problems = append(s.Problems, fmt.Sprintf("the agent of the node is not running. Start it as before, with \"systemctl start proa-agent\" if it is a service, "+
			"otherwise with \"proa agent --server URL%s\"; it has joined and needs no token", c.CommandFlags()))
	}
	s.MemoryBytes = residentMemory(s.PID)
	s.Ready = len(s.Problems) == 0
}

// notRunning returns the problem of a cluster that does not run. It names the reason if its server could not start, or has failed.
func notRunning(c localcluster.Cluster) error {
	if failure := c.Failure(); failure != "" {
		return fmt.Errorf("the cluster is not running; it ended with this error: %s", failure)
	}
	return fmt.Errorf("the cluster is not running; \"proa up%s\" starts it", c.CommandFlags())
}

// ask adds what the server reports about itself.
func (s *Status) ask(ctx context.Context, a *localcluster.Access) error {
	code, body, err := a.Get(ctx, "/readyz?verbose")
	if err != nil {
		return fmt.Errorf("the API server does not answer: %w", err)
	}
	s.Ready = code == http.StatusOK
	s.Checks = localcluster.ParseChecks(body)
	s.addFailing(ctx, a)
	for _, c := range s.Checks {
		if !c.OK {
			s.Problems = append(s.Problems, fmt.Sprintf("check %s: %s", c.Name, c.Text))
		}
	}
	for _, f := range s.Failing {
		s.Problems = append(s.Problems,
			fmt.Sprintf("%s has been failing since %s: %s", f.Part, f.Since.Local().Format(time.DateTime), f.Error))
	}
	if code, body, err = a.Get(ctx, "/version"); err == nil && code == http.StatusOK {
		var v struct {
			GitVersion string `json:"gitVersion"`
		}
		if json.Unmarshal(body, &v) == nil {
			s.Version = v.GitVersion
		}
	}
	if s.Nodes, s.MoreNodes, err = nodesOf(ctx, a); err != nil {
		s.Problems = append(s.Problems, fmt.Sprintf("the nodes cannot be listed: %v", err))
	}
	markStale(s.Nodes, s.Build)
	for _, n := range s.Nodes {
		if !n.Ready {
			s.Problems = append(s.Problems, fmt.Sprintf("node %s is not ready: %s", n.Name, n.Text))
		}
		for _, lacks := range n.Shortages {
			s.Problems = append(s.Problems, fmt.Sprintf("node %s %s", n.Name, lacks))
		}
	}
	s.Problems = append(s.Problems, unreachablePairs(s.Nodes)...)
	s.addRecent(ctx, a, time.Now())
	if code, body, err = a.Get(ctx, "/metrics"); err == nil && code == http.StatusOK {
		s.Objects = parseObjects(body, "apiserver_resource_objects{", "apiserver_storage_objects{")
		for resource, n := range parseObjects(body, "proa_unreadable_objects{") {
			s.Problems = append(s.Problems, fmt.Sprintf("%d stored %s cannot be decrypted or decoded; \"kubectl get %s -A\" names them in a warning", n, resource, resource))
		}
		markTunnels(s.Nodes, body)
		s.Problems = append(s.Problems, fullConnections(body)...)
	}
	return nil
}

// parseObjects returns the numbers of objects by resource from the metrics with some names.
func parseObjects(body []byte, names ...string) map[string]int {
	out := map[string]int{}
	lines := bufio.NewScanner(bytes.NewReader(body))
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		line := lines.Text()
		if !slices.ContainsFunc(names, func(n string) bool { return strings.HasPrefix(line, n) }) {
			continue
		}
		labels, value, ok := strings.Cut(line[strings.IndexByte(line, '{')+1:], "} ")
		if n, err := strconv.ParseFloat(value, 64); ok && err == nil && n > 0 {
			out[resourceOf(labels)] = int(n)
		}
	}
	return out
}

// resourceOf returns "deployments.apps" for the labels group="apps",resource="deployments".
func resourceOf(labels string) string {
	var group, resource string
	for l := range strings.SplitSeq(labels, ",") {
		name, value, _ := strings.Cut(l, "=")
		switch value = strings.Trim(value, `"`); name {
		case "group":
			group = value
		case "resource":
			resource = value
		}
	}
	if group == "" {
		return resource
	}
	return resource + "." + group
}

func (s *Status) print(env *command.Env, format string) error {
	if format == "json" {
		if s.unreadable { // whether it runs is not known, so it is not reported
			return command.WriteJSON(env.Out, map[string]any{"dataDir": s.DataDir, "problems": s.Problems})
		}
		return command.WriteJSON(env.Out, s)
	}
	w := tabwriter.NewWriter(env.Out, 0, 0, 2, ' ', 0)
	row := func(name, format string, args ...any) {
		fmt.Fprintf(w, "%s\t%s\n", name, command.Printable(fmt.Sprintf(format, args...)))
	}
	row("folder", "%s", s.DataDir)
	switch {
	case s.Running:
		row("process", "%d, %s resident", s.PID, megabytes(s.MemoryBytes))
	case s.unreadable:
		row("process", "unknown")
	default:
		row("process", "not running")
	}
	if s.Agent != "" {
		row("agent of node", "%s; \"proa status\" on a server of its cluster shows whether the node is ready", s.Agent)
	}
	for _, a := range s.Agents {
		row("agent of "+a.Node, "%d, %s resident", a.PID, megabytes(a.MemoryBytes))
	}
	if s.Server != "" {
		row("API server", "%s %s", s.Server, s.Version)
	}
	if s.Build != "" {
		row("build", "%s", s.Build)
	}
	hooks := 0
	for _, c := range s.Checks {
		if c.OK && (strings.HasPrefix(c.Name, "poststarthook/") || c.Name == "autoregister-completion") {
			hooks++ // many, and all for the same reason
			continue
		}
		row("  "+c.Name, "%s", c.Text)
	}
	if hooks > 0 {
		row("  start", "ok, %s", answer.Plural(hooks, "check"))
	}
	for i, n := range s.Nodes {
		if i == shownNodes {
			row("more nodes", "%d", int64(len(s.Nodes)-i)+s.MoreNodes)
			break
		}
		row("node "+n.Name, "%s", n.describe())
	}
	if s.StoreBytes > 0 {
		row("store", "%s on disk%s", megabytes(s.StoreBytes), s.objects())
	}
	if s.DiskFree > 0 {
		row("disk", "%s free", megabytes(s.DiskFree))
	}
	if len(s.Certificates) > 0 {
		next := s.Certificates[0]
		for _, cert := range s.Certificates {
			if cert.Expires.Before(next.Expires) {
				next = cert
			}
		}
		row("certificates", "%d; the next to expire is %s, in %s", len(s.Certificates), next.Name, localcluster.TimeLeft(next.Expires))
	}
	if err := w.Flush(); err != nil {
		return err
	}
	for _, p := range s.Problems {
		fmt.Fprintf(env.Out, "\nProblem: %s\n", command.Printable(p))
	}
	switch {
	case !s.Ready || len(s.Problems) > 0:
	case s.Agent != "":
		fmt.Fprintln(env.Out, "\nThe agent runs.")
	default:
		fmt.Fprintln(env.Out, "\nEverything is well.")
	}
	return nil
}

func (s *Status) objects() string {
	if len(s.Objects) == 0 {
		return ""
	}
	sum := 0
	for _, n := range s.Objects {
		sum += n
	}
	return ", " + answer.Plural(sum, "object") + " of " + answer.Plural(len(s.Objects), "resource")
}

func megabytes(n int64) string { return fmt.Sprintf("%.1f MB", float64(n)/1e6) }

// folderSize returns the disk space that the files of a folder use. The store reserves more than it has used.
func folderSize(dir string) (sum int64) {
	_ = filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			if info, err := d.Info(); err == nil {
				sum += diskUse(info)
			}
		}
		return nil
	})
	return sum
}
