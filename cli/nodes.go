package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"proa.dev/kinds/core"
)

// Simulated nodes can be many: askedNodes bounds those that are asked about, shownNodes those that people are shown.
const askedNodes, shownNodes = 500, 20

// nodeStatus is how a node is.
type nodeStatus struct {
	Name          string `json:"name"`
	Ready         bool   `json:"ready"`
	Unschedulable bool   `json:"unschedulable,omitempty"`
	Address       string `json:"address,omitempty"`
	Text          string `json:"text,omitempty"`   // why it is not ready
	Tunnel        bool   `json:"tunnel,omitempty"` // its agent has opened one to the server
	// Unreachable are the nodes whose Pods those of this node do not reach, as its agent has found out.
	Unreachable []string `json:"unreachable,omitempty"`
}

// words are what people see of it.
func (n nodeStatus) words() string {
	out := []string{"ready"}
	if !n.Ready {
		out[0] = "not ready"
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
	return strings.Join(out, ", ")
}

// nodesOf asks for the nodes, and says how many more there are.
func nodesOf(ctx context.Context, a *access) (out []nodeStatus, more int64, err error) {
	body, err := a.ok(ctx, fmt.Sprintf("/api/v1/nodes?limit=%d", askedNodes))
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

// tunnels says of nodes whether they have one, as the metrics of the server tell.
func tunnels(nodes []nodeStatus, metrics []byte) {
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

// cutOff are sentences about the pairs of nodes that are both ready and whose Pods do not reach each other. Of a node that is not ready
// something else is said.
func cutOff(nodes []nodeStatus) (out []string) {
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
	out := nodeStatus{Name: n.Name, Unschedulable: n.Spec.Unschedulable, Text: "it has not said how it is"}
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady {
			out.Ready, out.Text = c.Status == corev1.ConditionTrue, c.Message
		}
	}
	if out.Ready {
		out.Text = ""
	}
	if list := n.Annotations[core.UnreachableAnnotation]; list != "" {
		out.Unreachable = strings.Split(list, ",")
	}
	for _, a := range n.Status.Addresses {
		if a.Type == corev1.NodeInternalIP && out.Address == "" {
			out.Address = a.Address
		}
	}
	return out
}
