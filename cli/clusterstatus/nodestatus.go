package clusterstatus

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"proa.dev/cli/localcluster"
	"proa.dev/kinds/core/nodekind"
)

// There can be many simulated nodes: askedNodes bounds those that are listed, and shownNodes those that are shown.
const askedNodes, shownNodes = 500, 20

// nodeStatus is the status of a node.
type nodeStatus struct {
	Name          string `json:"name"`
	Ready         bool   `json:"ready"`
	Unschedulable bool   `json:"unschedulable,omitempty"`
	Address       string `json:"address,omitempty"`
	Text          string `json:"text,omitempty"`   // why it is not ready
	Tunnel        bool   `json:"tunnel,omitempty"` // its agent has opened one to the server
	// Build is the build of proa that runs its agent; empty for nodes of earlier builds, and for those that proa does not run.
	Build string `json:"build,omitempty"`
	// stale says that its agent is of another build than the server.
	stale bool
	// ofProa says that proa runs its agent, and not only a simulation or another kubelet.
	ofProa bool
	// Unreachable are the nodes whose Pods the Pods of this node cannot reach, as its agent has found out.
	Unreachable []string `json:"unreachable,omitempty"`
	// Shortages are what the node lacks although it may be ready, such as disk space.
	Shortages []string `json:"shortages,omitempty"`
}

// shortages returns what a node lacks, by the condition that says so.
func shortages() map[corev1.NodeConditionType]string {
	return map[corev1.NodeConditionType]string{
		corev1.NodeDiskPressure:       "is short of disk space",
		corev1.NodeMemoryPressure:     "is short of memory",
		corev1.NodePIDPressure:        "is short of process IDs",
		corev1.NodeNetworkUnavailable: "has no network",
	}
}

// describe describes the status for users.
func (n nodeStatus) describe() string {
	out := []string{"ready"}
	if !n.Ready {
		out[0] = "not ready"
	}
	for _, text := range n.Shortages {
		text, _, _ = strings.Cut(text, ":")
		out = append(out, strings.TrimPrefix(text, "is "))
	}
	if n.Unschedulable {
		out = append(out, "takes no new Pods")
	}
	if n.Address != "" {
		out = append(out, n.Address)
	}
	if n.Tunnel {
		out = append(out, "tunnel")
	}
	if n.stale {
		out = append(out, "of another build than the server: "+cmp.Or(n.Build, "an earlier one"))
	}
	return strings.Join(out, ", ")
}

// nodesOf lists the nodes, and returns how many more there are.
func nodesOf(ctx context.Context, a *localcluster.Access) (out []nodeStatus, more int64, err error) {
	body, err := a.GetOK(ctx, fmt.Sprintf("/api/v1/nodes?limit=%d", askedNodes))
	if err != nil {
		return nil, 0, err
	}
	var list corev1.NodeList
	if err := json.Unmarshal(body, &list); err != nil {
		return nil, 0, err
	}
	for i := range list.Items {
		out = append(out, describeNode(&list.Items[i]))
	}
	if list.RemainingItemCount != nil {
		more = *list.RemainingItemCount
	}
	return out, more, nil
}

// markTunnels sets whether nodes have a tunnel, from the metrics of the server.
func markTunnels(nodes []nodeStatus, metrics []byte) {
	open := map[string]bool{}
	for line := range strings.Lines(string(metrics)) {
		if rest, ok := strings.CutPrefix(line, `proa_node_tunnel_streams{node="`); ok {
			name, _, _ := strings.Cut(rest, `"`)
			open[name] = true
		}
	}
	for i := range nodes {
		nodes[i].Tunnel = open[nodes[i].Name]
	}
}

// markStale marks the nodes whose agents are of another build than the server.
func markStale(nodes []nodeStatus, server string) {
	for i := range nodes {
		n := &nodes[i]
		n.stale = server != "" && n.ofProa && n.Build != server
	}
}

// unreachablePairs describes the pairs of ready nodes whose Pods do not reach each other. Nodes that are not ready are reported
// otherwise.
func unreachablePairs(nodes []nodeStatus) (out []string) {
	ready := map[string]bool{}
	for _, n := range nodes {
		ready[n.Name] = n.Ready
	}
	more := 0
	for _, n := range nodes {
		for _, other := range n.Unreachable {
			if n.Ready && ready[other] && len(out) >= shownNodes {
				more++
			} else if n.Ready && ready[other] {
				out = append(out, fmt.Sprintf("Pods on node %s do not reach those on node %s; let packets of Pods and UDP port 8472 pass between the two machines", n.Name, other))
			}
		}
	}
	if more > 0 {
		out = append(out, fmt.Sprintf("Pods of %d more pairs of nodes do not reach each other", more))
	}
	return out
}

func describeNode(n *corev1.Node) nodeStatus {
	out := nodeStatus{Name: n.Name, Unschedulable: n.Spec.Unschedulable, Text: "it has not reported its status",
		Build:  n.Annotations[nodekind.BuildAnnotation],
		ofProa: strings.HasSuffix(n.Status.NodeInfo.KubeletVersion, "+proa") && n.Status.NodeInfo.OSImage != "simulated"}
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady {
			out.Ready, out.Text = c.Status == corev1.ConditionTrue, c.Message
		}
		if lacks := shortages()[c.Type]; lacks != "" && c.Status == corev1.ConditionTrue {
			out.Shortages = append(out.Shortages, fmt.Sprintf("%s: %s (%s)", lacks, c.Message, c.Type))
		}
	}
	if out.Ready {
		out.Text = ""
	}
	if list := n.Annotations[nodekind.UnreachableAnnotation]; list != "" {
		out.Unreachable = strings.Split(list, ",")
	}
	for _, a := range n.Status.Addresses {
		if a.Type == corev1.NodeInternalIP && out.Address == "" {
			out.Address = a.Address
		}
	}
	return out
}
