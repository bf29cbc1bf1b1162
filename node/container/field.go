package container

import (
	"errors"
	"fmt"
	"math"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"
	resourcehelper "k8s.io/component-helpers/resource"
)

// field is what a field of the Pod says, as the container is told.
func (m *Maker) field(p *corev1.Pod, ref *corev1.ObjectFieldSelector, ips []netip.Addr) (string, error) {
	if ref.APIVersion != "v1" {
		return "", fmt.Errorf("unsupported pod version: %s", ref.APIVersion)
	}
	node := m.nodeIPs()
	ips = Ordered(ips, node)
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
	return Field(p, ref.FieldPath)
}

// Ordered are the addresses of a Pod in the order that the node prefers: one of the node's first family, one of the other.
func Ordered(ips, node []netip.Addr) (out []netip.Addr) {
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

// Field is what a field of a Pod's metadata says.
func Field(p *corev1.Pod, path string) (string, error) {
	if field, key, ok := subscript(path); ok {
		switch field {
		case "metadata.annotations":
			if bad := validation.IsQualifiedName(strings.ToLower(key)); len(bad) != 0 {
				return "", fmt.Errorf("invalid key subscript in %s: %s", path, strings.Join(bad, ";"))
			}
			return p.Annotations[key], nil
		case "metadata.labels":
			if bad := validation.IsQualifiedName(key); len(bad) != 0 {
				return "", fmt.Errorf("invalid key subscript in %s: %s", path, strings.Join(bad, ";"))
			}
			return p.Labels[key], nil
		}
		return "", fmt.Errorf("field label does not support subscript: %s", path)
	}
	switch path {
	case "metadata.annotations":
		return formatMap(p.Annotations), nil
	case "metadata.labels":
		return formatMap(p.Labels), nil
	case "metadata.name":
		return p.Name, nil
	case "metadata.namespace":
		return p.Namespace, nil
	case "metadata.uid":
		return string(p.UID), nil
	}
	return "", fmt.Errorf("field label not supported: %s", path)
}

// subscript splits metadata.labels['a'].
func subscript(path string) (field, key string, ok bool) {
	inner, ok := strings.CutSuffix(path, "']")
	if !ok {
		return "", "", false
	}
	field, key, ok = strings.Cut(inner, "['")
	return field, key, ok && field != ""
}

func formatMap(m map[string]string) string {
	lines := make([]string, 0, len(m))
	for k, v := range m {
		lines = append(lines, k+"="+strconv.Quote(v))
	}
	slices.SortFunc(lines, func(a, b string) int {
		x, _, _ := strings.Cut(a, "=")
		y, _, _ := strings.Cut(b, "=")
		return strings.Compare(x, y)
	})
	return strings.Join(lines, "\n")
}

// amount is a request or limit of a container, in the unit that is asked for.
func (m *Maker) amount(p *corev1.Pod, c *corev1.Container, ref *corev1.ResourceFieldSelector) (string, error) {
	if ref.ContainerName != "" && ref.ContainerName != c.Name {
		var other *corev1.Container
		every(p, func(o *corev1.Container) {
			if o.Name == ref.ContainerName {
				other = o
			}
		})
		if other == nil {
			return "", fmt.Errorf("container %s not found", ref.ContainerName)
		}
		c = other
	}
	var allocatable corev1.ResourceList
	if m.Allocatable != nil {
		allocatable = m.Allocatable()
	}
	return Amount(p, c, ref, allocatable)
}

// Amount is a request or limit of a container. Where a container has no limit, its limit is that of the Pod, or what the node
// has for Pods.
func Amount(p *corev1.Pod, c *corev1.Container, ref *corev1.ResourceFieldSelector, allocatable corev1.ResourceList) (string, error) {
	list, name, _ := strings.Cut(ref.Resource, ".")
	r := corev1.ResourceName(name)
	plain := r == corev1.ResourceCPU || r == corev1.ResourceMemory || r == corev1.ResourceEphemeralStorage
	if list != "limits" && list != "requests" || !plain && !strings.HasPrefix(name, corev1.ResourceHugePagesPrefix) {
		return "", fmt.Errorf("unsupported container resource : %v", ref.Resource)
	}
	q := c.Resources.Requests[r]
	if list == "limits" {
		q = c.Resources.Limits[r]
		if plain && q.IsZero() {
			q = allocatable[r]
			if whole := podLimit(p, r); whole != nil {
				q = *whole
			}
		}
	}
	divisor := ref.Divisor
	if divisor.IsZero() {
		divisor = resource.MustParse("1")
	}
	have, unit := q.Value(), divisor.Value()
	if r == corev1.ResourceCPU {
		have, unit = q.MilliValue(), divisor.MilliValue()
	}
	return strconv.FormatInt(int64(math.Ceil(float64(have)/float64(unit))), 10), nil
}

// podLimit is the limit of the whole Pod, nil for none.
func podLimit(p *corev1.Pod, r corev1.ResourceName) *resource.Quantity {
	if p.Spec.Resources == nil || !resourcehelper.IsSupportedPodLevelResource(r) {
		return nil
	}
	if q, ok := p.Spec.Resources.Limits[r]; ok && !q.IsZero() {
		return &q
	}
	return nil
}
