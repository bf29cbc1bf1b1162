package cloud

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"

	"proa.dev/control"
	"proa.dev/kinds/gr"
	"proa.dev/kinds/kind"
)

const (
	// uninitialized is the taint of nodes that the cloud has not looked at yet.
	uninitialized = "node.cloudprovider.kubernetes.io/uninitialized"
	// providedIP is the annotation in which a node says which of its addresses it uses.
	providedIP = "alpha.kubernetes.io/provided-node-ip"
	// refreshAfter is how long addresses are believed.
	refreshAfter = 5 * time.Minute
)

// nodes writes into Nodes what the cloud knows about their machines. Until that is done a new node that waits for it takes no
// Pods.
func nodes(instances Instances) control.Controller {
	return control.Controller{
		Name: "cloud-node-controller", For: gr.Nodes, When: machineMatters,
		Writes: []control.Write{{On: gr.Nodes, Do: "update update/status"}},
		Reconcile: func(ctx context.Context, c *control.Cluster, k control.Key) (time.Duration, error) {
			n, found := control.Get[*corev1.Node](c, gr.Nodes, "", k.Name)
			if !found || n.DeletionTimestamp != nil {
				return 0, nil
			}
			return describe(ctx, c, n, instances)
		},
	}
}

// machineMatters leaves out what nodes say of themselves every few seconds.
func machineMatters(old, now kind.Object) bool {
	a, _ := old.(*corev1.Node)
	b, _ := now.(*corev1.Node)
	if a == nil || b == nil {
		return b != nil
	}
	same := apiequality.Semantic.DeepEqual
	return !same(a.Spec.Taints, b.Spec.Taints) || !same(a.Labels, b.Labels) || !same(a.Status.Addresses, b.Status.Addresses) || a.Spec.ProviderID != b.Spec.ProviderID ||
		a.Annotations[providedIP] != b.Annotations[providedIP]
}

func describe(ctx context.Context, c *control.Cluster, n *corev1.Node, instances Instances) (time.Duration, error) {
	is, err := instances.Metadata(ctx, n)
	if err != nil {
		return 0, fmt.Errorf("failed to get instance metadata for node %s: %w", n.Name, err)
	}
	if is == nil {
		return refreshAfter, nil
	}
	isNew := slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool { return t.Key == uninitialized })
	next := n.DeepCopy()
	if isNew {
		if err := introduce(next, is); err != nil {
			return 0, err
		}
	} else {
		oldLabels(next)
	}
	if !apiequality.Semantic.DeepEqual(n, next) {
		o, err := c.Update(ctx, gr.Nodes, next, "")
		written, ok := o.(*corev1.Node)
		if err != nil || !ok {
			return 0, control.Gone(err)
		}
		next = written.DeepCopy()
	}
	addresses, err := addressesOf(next, is)
	if err != nil {
		return refreshAfter, err
	}
	if len(addresses) > 0 && !apiequality.Semantic.DeepEqual(addresses, next.Status.Addresses) {
		next.Status.Addresses = addresses
		if _, err := c.Update(ctx, gr.Nodes, next, "status"); err != nil {
			return 0, control.Gone(err)
		}
	}
	if isNew {
		c.Event(n, corev1.EventTypeNormal, "Synced", "Node synced successfully")
	}
	return refreshAfter, nil
}

// introduce gives a new node what the cloud knows, and lets Pods come.
func introduce(n *corev1.Node, is *Metadata) error {
	if n.Spec.ProviderID == "" {
		n.Spec.ProviderID = is.ProviderID
	}
	if n.Spec.ProviderID == "" {
		return fmt.Errorf("cloud provider does not set node provider ID for node %s", n.Name)
	}
	if _, err := addressesOf(n, is); err != nil {
		return fmt.Errorf("provided node ip for node %q is not valid: %w", n.Name, err)
	}
	if n.Labels == nil {
		n.Labels = map[string]string{}
	}
	for name, value := range map[string]string{
		corev1.LabelInstanceType: is.InstanceType, corev1.LabelInstanceTypeStable: is.InstanceType,
		corev1.LabelFailureDomainBetaZone: is.Zone, corev1.LabelTopologyZone: is.Zone,
		corev1.LabelFailureDomainBetaRegion: is.Region, corev1.LabelTopologyRegion: is.Region,
	} {
		if value != "" {
			n.Labels[name] = value
		}
	}
	for _, name := range slices.Sorted(maps.Keys(is.Labels)) {
		if _, has := n.Labels[name]; !has && !reserved(name) {
			n.Labels[name] = is.Labels[name]
		}
	}
	n.Spec.Taints = slices.DeleteFunc(n.Spec.Taints, func(t corev1.Taint) bool { return t.Key == uninitialized })
	return nil
}

// reserved says that a label belongs to Kubernetes, and not to a cloud.
func reserved(label string) bool {
	domain, _, prefixed := strings.Cut(label, "/")
	for _, d := range []string{"kubernetes.io", "k8s.io"} {
		if prefixed && (domain == d || strings.HasSuffix(domain, "."+d)) {
			return true
		}
	}
	return false
}

// oldLabels keeps the names of zone, region and type in step with the names that they had before, which win.
func oldLabels(n *corev1.Node) {
	for from, to := range map[string]string{
		corev1.LabelFailureDomainBetaZone: corev1.LabelTopologyZone, corev1.LabelFailureDomainBetaRegion: corev1.LabelTopologyRegion,
		corev1.LabelInstanceType: corev1.LabelInstanceTypeStable,
	} {
		if v, has := n.Labels[from]; has {
			n.Labels[to] = v
		}
	}
}

// addressesOf are the addresses that a node shall have: those of the cloud, with the node's own word on its host name, and on
// which address it uses.
func addressesOf(n *corev1.Node, is *Metadata) ([]corev1.NodeAddress, error) {
	out := slices.Clone(is.Addresses)
	if len(out) == 0 {
		return nil, nil
	}
	host := func(a corev1.NodeAddress) bool { return a.Type == corev1.NodeHostName }
	if !slices.ContainsFunc(out, host) {
		for _, a := range n.Status.Addresses {
			if host(a) {
				out = append(out, a)
			}
		}
	}
	if text, has := n.Annotations[providedIP]; has {
		return preferred(text, out)
	}
	return out, nil
}

// preferred puts the addresses first that a node says it uses. Of their types no others are kept.
func preferred(text string, all []corev1.NodeAddress) (out []corev1.NodeAddress, err error) {
	types := map[corev1.NodeAddressType]bool{}
	for part := range strings.SplitSeq(text, ",") {
		ip, err := netip.ParseAddr(strings.TrimSpace(part))
		if err != nil {
			return nil, fmt.Errorf("failed to parse node IP %q: %w", text, err)
		}
		found := false
		for _, a := range all {
			if has, err := netip.ParseAddr(a.Address); err == nil && has.Unmap() == ip.Unmap() {
				out, types[a.Type], found = append(out, a), true, true
			}
		}
		if !found {
			return nil, fmt.Errorf("failed to get node address from cloud provider that matches ip: %v", ip)
		}
	}
	for _, a := range all {
		if !types[a.Type] {
			out = append(out, a)
		}
	}
	return out, nil
}
