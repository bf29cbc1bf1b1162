package cli

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

	proa "proa.dev/run"
)

func statusCommand() Command {
	return Command{
		Name: "status", Short: "say whether each part of the cluster is well",
		Long: `
Shows the process, each check of the API server, each node, the size of the store, the number of objects and the next
certificate to expire, and whatever does not work: a part of the server or of a node that has failed, a controller that keeps
failing about an object, a node of this machine on which the cluster's DNS or the Service of the API server does not answer.
The exit code is 0 when everything is well and 1 when something is not.`,
		Setup: func(fs *flag.FlagSet) func(context.Context, *Env, []string) error {
			which := anyDataDirFlag(fs)
			format := outputFlag(fs)
			return func(ctx context.Context, env *Env, args []string) error {
				if err := noArguments("status", args); err != nil {
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
				s := look(ctx, c)
				if err := s.print(env, output); err != nil {
					return err
				}
				if !s.Ready || len(s.Problems) > 0 {
					return exitCode(1)
				}
				return nil
			}
		},
	}
}

// status is what is known about a cluster.
type status struct {
	DataDir      string         `json:"dataDir"`
	Running      bool           `json:"running"`
	Ready        bool           `json:"ready"`
	PID          int            `json:"pid,omitempty"`
	MemoryBytes  int64          `json:"memoryBytes,omitempty"`
	Server       string         `json:"server,omitempty"`
	Version      string         `json:"version,omitempty"`
	Checks       []check        `json:"checks,omitempty"`
	StoreBytes   int64          `json:"storeBytes,omitempty"`
	DiskFree     int64          `json:"diskFreeBytes,omitempty"`
	Objects      map[string]int `json:"objects,omitempty"`
	Failing      []proa.Failing `json:"failing,omitempty"`
	Nodes        []nodeStatus   `json:"nodes,omitempty"`
	MoreNodes    int64          `json:"moreNodes,omitempty"`
	Certificates []certificate  `json:"certificates,omitempty"`
	Problems     []string       `json:"problems,omitempty"`

	unreadable bool // the folder belongs to another user, so nothing is known
}

// check is one part of the answer of /readyz.
type check struct {
	Name string `json:"name"`
	OK   bool   `json:"ok"`
	Text string `json:"text,omitempty"`
}

// look gathers what can be known; what cannot becomes a problem, and the rest is shown all the same.
func look(ctx context.Context, c cluster) *status {
	s := &status{DataDir: c.dir}
	problem := func(err error) bool {
		if err != nil {
			s.Problems = append(s.Problems, err.Error())
		}
		return err != nil
	}
	if err := c.exists(); problem(err) {
		s.unreadable = errors.Is(err, errNoRights)
		return s
	}
	pid, err := c.pid()
	problem(err)
	s.PID, s.Running = pid, pid != 0
	s.StoreBytes, s.DiskFree = folderSize(c.file("etcd")), diskFree(c.dir)
	if certs, err := c.certificates(); !problem(err) {
		s.Certificates = certs
		for _, cert := range certs {
			if time.Until(cert.Expires) <= 0 && cert.CA == cert.Signs { // one that is only trusted may have had its time
				problem(fmt.Errorf("certificate %s expired on %s; a restart renews it", cert.Name, cert.Expires.Format(time.DateOnly)))
			}
		}
	}
	if !s.Running {
		problem(fmt.Errorf("the cluster is not running; \"proa up%s\" starts it", c.flags()))
		return s
	}
	s.MemoryBytes = residentMemory(pid)
	if a, err := c.access(); !problem(err) {
		s.Server = a.server()
		problem(s.ask(ctx, a))
		problem(s.tryNodes(ctx, c, a))
	}
	return s
}

// ask adds what the server says about itself.
func (s *status) ask(ctx context.Context, a *access) error {
	code, body, err := a.get(ctx, "/readyz?verbose")
	if err != nil {
		return fmt.Errorf("the API server does not answer: %w", err)
	}
	s.Ready = code == http.StatusOK
	s.Checks = parseChecks(body)
	s.addFailing(ctx, a)
	for _, c := range s.Checks {
		if !c.OK {
			s.Problems = append(s.Problems, fmt.Sprintf("check %s: %s", c.Name, c.Text))
		}
	}
	for _, f := range s.Failing {
		s.Problems = append(s.Problems, fmt.Sprintf("%s fails since %s: %s", f.Part, f.Since.Local().Format(time.DateTime), f.Error))
	}
	if code, body, err = a.get(ctx, "/version"); err == nil && code == http.StatusOK {
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
	for _, n := range s.Nodes {
		if !n.Ready {
			s.Ready = false
			s.Problems = append(s.Problems, fmt.Sprintf("node %s is not ready: %s", n.Name, n.Text))
		}
	}
	for _, problem := range cutOff(s.Nodes) {
		s.Ready = false
		s.Problems = append(s.Problems, problem)
	}
	if code, body, err = a.get(ctx, "/metrics"); err == nil && code == http.StatusOK {
		s.Objects = parseObjects(body, "apiserver_resource_objects{", "apiserver_storage_objects{")
		for resource, n := range parseObjects(body, "proa_unreadable_objects{") {
			s.Ready = false
			s.Problems = append(s.Problems, fmt.Sprintf("%d stored %s cannot be decrypted or decoded; \"kubectl get %s -A\" names them in a warning", n, resource, resource))
		}
		tunnels(s.Nodes, body)
	}
	return nil
}

// parseChecks reads the lines "[+]name ok" and "[-]name failed: why" of a verbose health answer.
func parseChecks(body []byte) (out []check) {
	lines := bufio.NewScanner(bytes.NewReader(body))
	for lines.Scan() {
		line := lines.Text()
		if !strings.HasPrefix(line, "[+]") && !strings.HasPrefix(line, "[-]") {
			continue
		}
		name, text, _ := strings.Cut(line[3:], " ")
		out = append(out, check{Name: name, OK: line[1] == '+', Text: text})
	}
	return out
}

// parseObjects reads a number of objects by resource from the metrics with some names.
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

// resourceOf makes "deployments.apps" of the labels group="apps",resource="deployments".
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

func (s *status) print(env *Env, format string) error {
	if format == "json" {
		enc := json.NewEncoder(env.Out)
		enc.SetIndent("", "  ")
		if s.unreadable { // whether it runs is not known, so it is not said
			return enc.Encode(map[string]any{"dataDir": s.DataDir, "problems": s.Problems})
		}
		return enc.Encode(s)
	}
	w := tabwriter.NewWriter(env.Out, 0, 0, 2, ' ', 0)
	row := func(name, format string, args ...any) {
		fmt.Fprintf(w, "%s\t%s\n", name, plain(fmt.Sprintf(format, args...)))
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
	if s.Server != "" {
		row("API server", "%s %s", s.Server, s.Version)
	}
	for _, c := range s.Checks {
		row("  "+c.Name, "%s", c.Text)
	}
	for i, n := range s.Nodes {
		if i == shownNodes {
			row("more nodes", "%d", int64(len(s.Nodes)-i)+s.MoreNodes)
			break
		}
		row("node "+n.Name, "%s", n.words())
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
		row("certificates", "%d; the next to expire is %s, in %s", len(s.Certificates), next.Name, left(next.Expires))
	}
	if err := w.Flush(); err != nil {
		return err
	}
	for _, p := range s.Problems {
		fmt.Fprintf(env.Out, "\nProblem: %s\n", plain(p))
	}
	if s.Ready && len(s.Problems) == 0 {
		fmt.Fprintln(env.Out, "\nEverything is well.")
	}
	return nil
}

func (s *status) objects() string {
	if len(s.Objects) == 0 {
		return ""
	}
	sum := 0
	for _, n := range s.Objects {
		sum += n
	}
	return fmt.Sprintf(", %d objects of %d resources", sum, len(s.Objects))
}

func megabytes(n int64) string { return fmt.Sprintf("%.1f MB", float64(n)/1e6) }

// folderSize sums what the files of a folder take on disk; the store sets aside more than it has used.
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
