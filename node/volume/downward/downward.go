// Package downward computes the values of the downward API: fields of a Pod, and the resources of its containers. It is
// pure, and used for volumes and environment variables.
package downward

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"
)

// Field returns a field of a Pod's metadata.
func Field(p *corev1.Pod, path string) (string, error) {
	if of, key, ok := subscript(path); ok {
		switch of {
		case "metadata.annotations":
			return keyed(path, key, strings.ToLower(key), p.Annotations)
		case "metadata.labels":
			return keyed(path, key, key, p.Labels)
		}
		return "", fmt.Errorf("fieldPath %q does not support subscript", path)
	}
	switch path {
	case "metadata.annotations":
		return List(p.Annotations), nil
	case "metadata.labels":
		return List(p.Labels), nil
	case "metadata.name":
		return p.Name, nil
	case "metadata.namespace":
		return p.Namespace, nil
	case "metadata.uid":
		return string(p.UID), nil
	}
	return "", fmt.Errorf("unsupported fieldPath: %v", path)
}

func keyed(path, key, checked string, from map[string]string) (string, error) {
	if errs := validation.IsQualifiedName(checked); len(errs) != 0 {
		return "", fmt.Errorf("invalid key subscript in %s: %s", path, strings.Join(errs, ";"))
	}
	return from[key], nil
}

// subscript splits metadata.labels['key'].
func subscript(path string) (of, key string, ok bool) {
	inner, ok := strings.CutSuffix(path, "']")
	if !ok {
		return "", "", false
	}
	of, key, ok = strings.Cut(inner, "['")
	return of, key, ok && of != ""
}

// List formats labels or annotations, one per line, sorted by key.
func List(m map[string]string) string {
	var lines []string
	for _, k := range slices.Sorted(maps.Keys(m)) {
		lines = append(lines, k+"="+strconv.Quote(m[k]))
	}
	return strings.Join(lines, "\n")
}

// Resource returns a request or limit of a container, divided by the selector's divisor and rounded up. For a limit
// that the container does not have, the allocatable amount of the node is used.
func Resource(p *corev1.Pod, s *corev1.ResourceFieldSelector, allocatable corev1.ResourceList) (string, error) {
	c := container(p, s.ContainerName)
	if c == nil {
		return "", fmt.Errorf("container %s not found", s.ContainerName)
	}
	return ResourceOf(c, s, allocatable)
}

// ResourceOf is Resource for a given container.
func ResourceOf(c *corev1.Container, s *corev1.ResourceFieldSelector, allocatable corev1.ResourceList) (string, error) {
	divisor := s.Divisor
	if divisor.IsZero() {
		divisor = resource.MustParse("1")
	}
	of, name, _ := strings.Cut(s.Resource, ".")
	var have corev1.ResourceList
	switch of {
	case "limits":
		have = limits(c, allocatable)
	case "requests":
		have = c.Resources.Requests
	default:
		return "", fmt.Errorf("unsupported container resource : %v", s.Resource)
	}
	q := have[corev1.ResourceName(name)]
	switch {
	case name == string(corev1.ResourceCPU):
		return divided(q.MilliValue(), divisor.MilliValue()), nil
	case name == string(corev1.ResourceMemory), name == string(corev1.ResourceEphemeralStorage), strings.HasPrefix(name,
		corev1.ResourceHugePagesPrefix):
		return divided(q.Value(), divisor.Value()), nil
	}
	return "", fmt.Errorf("unsupported container resource : %v", s.Resource)
}

// limits returns the limits of a container, completed by the allocatable resources of the node.
func limits(c *corev1.Container, allocatable corev1.ResourceList) corev1.ResourceList {
	out := maps.Clone(c.Resources.Limits)
	if out == nil {
		out = corev1.ResourceList{}
	}
	for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceEphemeralStorage} {
		if q, ok := out[name]; !ok || q.IsZero() {
			if capacity, ok := allocatable[name]; ok {
				out[name] = capacity
			}
		}
	}
	return out
}

func divided(value, by int64) string {
	if by == 0 {
		return "0"
	}
	return strconv.FormatInt(int64(math.Ceil(float64(value)/float64(by))), 10)
}

// container finds a container of a Pod that is not an ephemeral one.
func container(p *corev1.Pod, name string) *corev1.Container {
	for _, all := range [][]corev1.Container{p.Spec.Containers, p.Spec.InitContainers} {
		for i := range all {
			if all[i].Name == name {
				return &all[i]
			}
		}
	}
	return nil
}
