// Package chaos sends steady traffic to a Deployment and counts the requests that fail during rollouts, in which none may fail, and
// while nodes, agents and links are killed, after which traffic must recover by itself. The traffic comes from Pods, from nodes and
// from outside the cluster, to every kind of address of a Service, over kept and over new connections.
//
// The cluster is started by the caller: the e2e tests, which run a few events, or the command in the folder cmd, whose results are in
// the docs.
package chaos

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// Cluster is a running cluster, with the programs that access it.
type Cluster struct {
	Kubectl    string
	Kubeconfig string
	// Tool is the path of the program of the image proa.test/tool:1, built for this machine.
	Tool string
	// Log is called with messages about the run, Failed with each request that fails. Both may be nil.
	Log    func(format string, args ...any)
	Failed func(Failure)
}

func (c *Cluster) logf(format string, args ...any) {
	if c.Log != nil {
		c.Log(format, args...)
	}
}

// BuildTool builds the tool from the root of the repository, into a folder.
func BuildTool(ctx context.Context, root, folder string) (string, error) {
	out := filepath.Join(folder, "tool")
	cmd := exec.CommandContext(ctx, "go", "build", "-tags", "grpcnotrace", "-o", out, "./test/images/tool")
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if text, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build the tool: %w\n%s", err, text)
	}
	return out, nil
}

// kubectl runs kubectl and returns its output.
func (c *Cluster) kubectl(ctx context.Context, stdin string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, c.Kubectl, args...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+c.Kubeconfig)
	cmd.Stdin = strings.NewReader(stdin)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("kubectl %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(errs.String()))
	}
	return strings.TrimSpace(out.String()), nil
}

// get reads an object.
func (c *Cluster) get(ctx context.Context, into any, args ...string) error {
	text, err := c.kubectl(ctx, "", append([]string{"get", "-o", "json"}, args...)...)
	if err != nil {
		return err
	}
	return json.Unmarshal([]byte(text), into)
}

// Nodes returns the nodes with their addresses; the one with the control plane is first.
func (c *Cluster) Nodes(ctx context.Context) ([]Node, error) {
	var list corev1.NodeList
	if err := c.get(ctx, &list, "nodes"); err != nil {
		return nil, err
	}
	var out []Node
	for _, n := range list.Items {
		node := Node{Name: n.Name}
		for _, a := range n.Status.Addresses {
			if a.Type == corev1.NodeInternalIP && node.Address == "" {
				node.Address = a.Address
			}
		}
		for _, cond := range n.Status.Conditions {
			node.Ready = node.Ready || cond.Type == corev1.NodeReady && cond.Status == corev1.ConditionTrue
		}
		out = append(out, node)
	}
	return out, nil
}

// Node is a node as clients see it.
type Node struct {
	Name, Address string
	Ready         bool
}

// eventually calls try until it succeeds or the time limit is over, and returns the last error.
func eventually(ctx context.Context, limit time.Duration, what string, try func() error) error {
	deadline := time.Now().Add(limit)
	for {
		err := try()
		if err == nil {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%s: not within %s: %w", what, limit, err)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(100 * time.Millisecond):
		}
	}
}
