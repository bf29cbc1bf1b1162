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
	"proa.dev/kinds/kind"
	"proa.dev/kinds/lib/gr"
)

const (
	// uninitializedTaint is the taint of nodes that this controller has not initialized yet.
	uninitializedTaint = "node.cloudprovider.kubernetes.io/uninitialized"
	// providedIPAnnotation is the annotation with the addresses that a node's kubelet was told to use.
	providedIPAnnotation = "alpha.kubernetes.io/provided-node-ip"
	// refreshInterval is the interval at which the addresses of a node are refreshed.
	refreshInterval = 5 * time.Minute
)

// nodeController returns the controller that writes provider IDs, labels and addresses of machines into Nodes. It removes the taint
// that keeps Pods from a node that is not initialized yet.
func nodeController(instances Instances) control.Controller {
	return control.Controller{
		Name: "cloud-node-controller", For: gr.Nodes, When: isRelevantNodeChange,
		Writes: []control.Write{{On: gr.Nodes, Do: "update update/status"}},
		Reconcile: func(ctx context.Context, c *control.Cluster, k control.Key) (time.Duration, error) {
			n, found := control.Get[*corev1.Node](c, gr.Nodes, "", k.Name)
			if !found || n.DeletionTimestamp != nil {
				return 0, nil
			}
			return syncNode(ctx, c, n, instances)
		},
	}
}

// isRelevantNodeChange ignores the status updates that nodes write every few seconds.
func isRelevantNodeChange(old, now kind.Object) bool {
	a, _ := old.(*corev1.Node)
	b, _ := now.(*corev1.Node)
	if a == nil || b == nil {
		return b != nil
	}
	same := apiequality.Semantic.DeepEqual
	return !same(a.Spec.Taints, b.Spec.Taints) || !same(a.Labels, b.Labels) || !same(a.Status.Addresses, b.Status.Addresses) ||
		a.Spec.ProviderID != b.Spec.ProviderID ||
		a.Annotations[providedIPAnnotation] != b.Annotations[providedIPAnnotation]
}

// syncNode brings one Node in line with the metadata of its machine.
func syncNode(ctx context.Context, c *control.Cluster, n *corev1.Node, instances Instances) (time.Duration, error) {
	is, err := instances.Metadata(ctx, n)
	if err != nil {
		return 0, fmt.Errorf("failed to get instance metadata for node %s: %w", n.Name, err)
	}
	if is == nil {
		return refreshInterval, nil
	}
	isNew := slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool { return t.Key == uninitializedTaint })
	next := n.DeepCopy()
	if isNew {
		if err := initializeNode(next, is); err != nil {
			return 0, err
		}
	} else {
		copyDeprecatedLabels(next)
	}
	if !apiequality.Semantic.DeepEqual(n, next) {
		o, err := c.Update(ctx, gr.Nodes, next, "")
		written, ok := o.(*corev1.Node)
		if err != nil || !ok {
			return 0, control.IgnoreNotFound(err)
		}
		next = written.DeepCopy()
	}
	addresses, err := addressesOf(next, is)
	if err != nil {
		return refreshInterval, err
	}
	if len(addresses) > 0 && !apiequality.Semantic.DeepEqual(addresses, next.Status.Addresses) {
		next.Status.Addresses = addresses
		if _, err := c.Update(ctx, gr.Nodes, next, "status"); err != nil {
			return 0, control.IgnoreNotFound(err)
		}
	}
	if isNew {
		c.Event(n, corev1.EventTypeNormal, "Synced", "Node synced successfully")
	}
	return refreshInterval, nil
}

// initializeNode initializes a new node: it sets the provider ID and labels, and removes the taint.
func initializeNode(n *corev1.Node, is *Metadata) error {
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
		if _, has := n.Labels[name]; !has && !isReservedLabel(name) {
			n.Labels[name] = is.Labels[name]
		}
	}
	n.Spec.Taints = slices.DeleteFunc(n.Spec.Taints, func(t corev1.Taint) bool { return t.Key == uninitializedTaint })
	return nil
}

// isReservedLabel reports whether a label is of a domain of Kubernetes, which a cloud may not set.
func isReservedLabel(label string) bool {
	domain, _, prefixed := strings.Cut(label, "/")
	for _, d := range []string{"kubernetes.io", "k8s.io"} {
		if prefixed && (domain == d || strings.HasSuffix(domain, "."+d)) {
			return true
		}
	}
	return false
}

// copyDeprecatedLabels copies the deprecated labels of zone, region and instance type to the current ones.
func copyDeprecatedLabels(n *corev1.Node) {
	for from, to := range map[string]string{
		corev1.LabelFailureDomainBetaZone: corev1.LabelTopologyZone, corev1.LabelFailureDomainBetaRegion: corev1.LabelTopologyRegion,
		corev1.LabelInstanceType: corev1.LabelInstanceTypeStable,
	} {
		if v, has := n.Labels[from]; has {
			n.Labels[to] = v
		}
	}
}

// addressesOf returns the addresses that a node shall have: those of the cloud, and the node's own host name if the cloud has
// none. The addresses that the node says it uses come first.
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
	if text, has := n.Annotations[providedIPAnnotation]; has {
		return preferProvidedIPs(text, out)
	}
	return out, nil
}

// preferProvidedIPs puts the addresses that a node says it uses first, and drops the other addresses of their types.
func preferProvidedIPs(text string, all []corev1.NodeAddress) (out []corev1.NodeAddress, err error) {
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
