package cli

import (
	"context"
	"encoding/json"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// shownNodes bounds the nodes that are shown to people; simulated ones can be many.
const shownNodes = 20

// nodeStatus is how a node is.
type nodeStatus struct {
	Name          string `json:"name"`
	Ready         bool   `json:"ready"`
	Unschedulable bool   `json:"unschedulable,omitempty"`
	Address       string `json:"address,omitempty"`
	Text          string `json:"text,omitempty"` // why it is not ready
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
	return strings.Join(out, ", ")
}

// nodesOf asks for the nodes.
func nodesOf(ctx context.Context, a *access) (out []nodeStatus, err error) {
	body, err := a.ok(ctx, "/api/v1/nodes")
	if err != nil {
		return nil, err
	}
	var list corev1.NodeList
	if err := json.Unmarshal(body, &list); err != nil {
		return nil, err
	}
	for i := range list.Items {
		out = append(out, describeNode(&list.Items[i]))
	}
	return out, nil
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
	for _, a := range n.Status.Addresses {
		if a.Type == corev1.NodeInternalIP && out.Address == "" {
			out.Address = a.Address
		}
	}
	return out
}
