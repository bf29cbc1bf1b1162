// Package nodekind declares Nodes: their defaulting and validation, the pod CIDRs that they claim, the proxy to their agents, and the
// reduced form in which other nodes see them.
package nodekind

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"proa.dev/kinds/core/connectoptions"
	"proa.dev/kinds/kind"
	"proa.dev/kinds/lib/defaulting"
)

// The labels with the roles of a node.
const (
	rolePrefix = "node-role.kubernetes.io/"
	roleLabel  = "kubernetes.io/role"
)

// Nodes are the machines of the cluster. They register themselves, so a create keeps their status.
func Nodes(h Hooks) *kind.Def {
	return kind.Define(kind.Resource[corev1.Node]{
		Traits: kind.Traits{
			GroupVersionKind: schema.GroupVersionKind{Version: "v1", Kind: "Node"}, Plural: "nodes", Short: []string{"no"},
			Scope: kind.Cluster, StorageFolder: "minions",
		},
		Spec:       func(n *corev1.Node) any { return &n.Spec },
		Status:     func(n *corev1.Node) any { return &n.Status },
		KeepStatus: true,
		Default:    defaultNode,
		Prepare:    prepareNode,
		Validate:   validateNode,
		Begin:      h.beginNode,
		Warn:       func(n, _ *corev1.Node) []string { return nodeWarnings(n) },
		Columns:    nodeColumns(),
		Fields: map[string]func(*corev1.Node) string{
			"spec.unschedulable": func(n *corev1.Node) string { return strconv.FormatBool(n.Spec.Unschedulable) },
		},
		ForNodes: nodeForNodes(),
		Subs: []kind.Sub[corev1.Node]{
			{Name: "status", Prepare: prepareNodeStatus, Validate: validateNodeChange},
			{
				Name: "proxy", Verbs: connectoptions.ProxyVerbs(),
				Body:    connectoptions.Body("NodeProxyOptions", connectoptions.NodeProxy),
				Connect: connectNode,
			},
		},
	})
}

// defaultNode makes all capacity allocatable, and keeps spec.podCIDR equal to the first of spec.validatePodCIDRs. Where they
// differ podCIDR wins: a client that knows only that field has set it.
func defaultNode(n *corev1.Node) {
	if n.Status.Allocatable == nil && n.Status.Capacity != nil {
		n.Status.Allocatable = n.Status.Capacity.DeepCopy()
	}
	defaulting.RoundUp(n.Status.Capacity)
	defaulting.RoundUp(n.Status.Allocatable)
	s := &n.Spec
	if s.PodCIDR != "" && (len(s.PodCIDRs) == 0 || s.PodCIDRs[0] != s.PodCIDR) {
		s.PodCIDRs = []string{s.PodCIDR}
	}
	if len(s.PodCIDRs) > 0 {
		s.PodCIDR = s.PodCIDRs[0]
	}
}

// prepareNode drops fields that are no longer supported and those of disabled features.
func prepareNode(n, old *corev1.Node) {
	if old == nil {
		n.Spec.ConfigSource, n.Status.Config = nil, nil
	} else if old.Spec.ConfigSource == nil {
		n.Spec.ConfigSource = nil
	}
	if old == nil || old.Spec.PodPreemptionPolicy == nil {
		n.Spec.PodPreemptionPolicy = nil
	}
}

func prepareNodeStatus(n, old *corev1.Node) {
	if old.Status.Config == nil {
		n.Status.Config = nil
	}
}

func nodeWarnings(n *corev1.Node) []string {
	var warnings []string
	if n.Spec.ConfigSource != nil {
		warnings = append(warnings, "spec.configSource: the feature is removed")
	}
	if n.Spec.DoNotUseExternalID != "" {
		warnings = append(warnings, "spec.externalID: this field is deprecated, and is unused by Kubernetes")
	}
	for i, cidr := range n.Spec.PodCIDRs {
		warnings = append(warnings, validation.GetWarningsForCIDR(field.NewPath("spec", "podCIDRs").Index(i), cidr)...)
	}
	return warnings
}

func nodeColumns() []kind.Column[corev1.Node] {
	info, status := corev1.NodeSystemInfo{}.SwaggerDoc(), corev1.NodeStatus{}.SwaggerDoc()
	known := func(s string) string {
		if s == "" {
			return "<unknown>"
		}
		return s
	}
	return []kind.Column[corev1.Node]{
		kind.NameColumn[corev1.Node](),
		{Name: "Status", Description: "The status of the node", Value: func(n *corev1.Node) any { return nodeState(n) }},
		{Name: "Roles", Description: "The roles of the node", Value: func(n *corev1.Node) any { return nodeRoles(n) }},
		kind.AgeColumn[corev1.Node](),
		{Name: "Version", Description: info["kubeletVersion"], Value: func(n *corev1.Node) any { return n.Status.NodeInfo.KubeletVersion }},
		{Name: "Internal-IP", Wide: true, Description: status["addresses"],
			Value: func(n *corev1.Node) any { return nodeAddress(n, corev1.NodeInternalIP) }},
		{Name: "External-IP", Wide: true, Description: status["addresses"],
			Value: func(n *corev1.Node) any { return nodeAddress(n, corev1.NodeExternalIP) }},
		{Name: "OS-Image", Wide: true, Description: info["osImage"],
			Value: func(n *corev1.Node) any { return known(n.Status.NodeInfo.OSImage) }},
		{Name: "Kernel-Version", Wide: true, Description: info["kernelVersion"], Value: func(n *corev1.Node) any {
			kernel := known(n.Status.NodeInfo.KernelVersion)
			if arch := n.Status.NodeInfo.Architecture; arch != "" {
				kernel += " (" + arch + ")"
			}
			return kernel
		}},
		{Name: "Container-Runtime", Wide: true, Description: info["containerRuntimeVersion"],
			Value: func(n *corev1.Node) any { return known(n.Status.NodeInfo.ContainerRuntimeVersion) }},
	}
}

func nodeState(n *corev1.Node) string {
	state := "Unknown"
	for _, c := range n.Status.Conditions {
		if c.Type != corev1.NodeReady {
			continue
		}
		state = "NotReady"
		if c.Status == corev1.ConditionTrue {
			state = "Ready"
		}
	}
	if n.Spec.Unschedulable {
		state += ",SchedulingDisabled"
	}
	return state
}

func nodeRoles(n *corev1.Node) string {
	roles := map[string]bool{}
	for label, v := range n.Labels {
		if role, ok := strings.CutPrefix(label, rolePrefix); ok && role != "" {
			roles[role] = true
		} else if label == roleLabel && v != "" {
			roles[v] = true
		}
	}
	if len(roles) == 0 {
		return "<none>"
	}
	return strings.Join(slices.Sorted(maps.Keys(roles)), ",")
}

func nodeAddress(n *corev1.Node, t corev1.NodeAddressType) string {
	for _, a := range n.Status.Addresses {
		if a.Type == t {
			return a.Address
		}
	}
	return "<none>"
}
