package container

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	resourcehelper "k8s.io/component-helpers/resource"

	"proa.dev/node/fact"
	"proa.dev/node/volume/downward"
)

// field returns the value of a field of the Pod, for an environment variable.
func (m *Maker) field(p *corev1.Pod, ref *corev1.ObjectFieldSelector, ips []netip.Addr) (string, error) {
	if ref.APIVersion != "v1" {
		return "", fmt.Errorf("unsupported pod version: %s", ref.APIVersion)
	}
	node := m.nodeIPs()
	ips = OrderIPs(ips, node)
	switch ref.FieldPath {
	case "spec.nodeName", "spec.host":
		return p.Spec.NodeName, nil
	case "spec.serviceAccountName":
		return p.Spec.ServiceAccountName, nil
	case "status.hostIP":
		if len(node) == 0 {
			return "", errors.New("the node has no address yet")
		}
		return node[0].String(), nil
	case "status.hostIPs":
		return join(node), nil
	case "status.podIP":
		return join(ips[:min(len(ips), 1)]), nil
	case "status.podIPs":
		return join(ips), nil
	}
	return downward.Field(p, ref.FieldPath)
}

// OrderIPs returns the addresses of a Pod in the order that the node prefers: one of the node's first family, then one
// of the other.
func OrderIPs(ips, node []netip.Addr) (out []netip.Addr) {
	six := len(node) > 0 && node[0].Unmap().Is6()
	for _, want := range []bool{six, !six} {
		if i := slices.IndexFunc(ips, func(ip netip.Addr) bool { return ip.Unmap().Is6() == want }); i >= 0 {
			out = append(out, ips[i].Unmap())
		}
	}
	return out
}

func join(ips []netip.Addr) string {
	out := make([]string, len(ips))
	for i, ip := range ips {
		out[i] = ip.String()
	}
	return strings.Join(out, ",")
}

// resourceField returns a request or limit of a container, in the unit of the selector's divisor.
func (m *Maker) resourceField(p *corev1.Pod, c *corev1.Container, ref *corev1.ResourceFieldSelector) (string, error) {
	if ref.ContainerName != "" && ref.ContainerName != c.Name {
		var other *corev1.Container
		for o := range fact.AllContainers(p) {
			if o.Name == ref.ContainerName {
				other = o
			}
		}
		if other == nil {
			return "", fmt.Errorf("container %s not found", ref.ContainerName)
		}
		c = other
	}
	var has corev1.ResourceList
	if m.Allocatable != nil {
		has = m.Allocatable()
	}
	return downward.ResourceOf(c, ref, availableTo(p, has))
}

// availableTo returns what a container without limits may use: the allocatable resources of the node, or the Pod's limit if
// it has one.
func availableTo(p *corev1.Pod, has corev1.ResourceList) corev1.ResourceList {
	has = maps.Clone(has)
	for r := range has {
		if whole := podLimit(p, r); whole != nil {
			has[r] = *whole
		}
	}
	return has
}

// podLimit returns the Pod-level limit of a resource, nil for none.
func podLimit(p *corev1.Pod, r corev1.ResourceName) *resource.Quantity {
	if p.Spec.Resources == nil || !resourcehelper.IsSupportedPodLevelResource(r) {
		return nil
	}
	if q, ok := p.Spec.Resources.Limits[r]; ok && !q.IsZero() {
		return &q
	}
	return nil
}
