// Package metrics holds the kinds of the metrics.k8s.io group: what nodes and Pods use, computed when it is asked for.
package metrics

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	metricsv1beta1 "k8s.io/metrics/pkg/apis/metrics/v1beta1"

	"proa.dev/kinds/kind"
)

// Source measures usage. The caller may modify the objects that it returns.
type Source interface {
	Nodes(ctx context.Context, d kind.Server) ([]*metricsv1beta1.NodeMetrics, error)
	Pods(ctx context.Context, d kind.Server) ([]*metricsv1beta1.PodMetrics, error)
}

// All lists the kinds of the group.
func All(s Source) []*kind.Def { return []*kind.Def{Nodes(s), Pods(s)} }

// Nodes are the resource usage of nodes.
func Nodes(s Source) *kind.Def {
	type metrics = metricsv1beta1.NodeMetrics
	return kind.Define(kind.Resource[metrics]{
		Traits: kind.Traits{
			GroupVersionKind: schema.GroupVersionKind{Group: metricsv1beta1.GroupName, Version: "v1beta1", Kind: "NodeMetrics"},
			Plural:           "nodes", Scope: kind.Cluster,
			StorageFolder: "metrics.k8s.io/nodes", Verbs: []string{"get", "list"},
		},
		Computed: func(ctx context.Context, d kind.Server, _ kind.Selection) ([]*metrics, error) { return s.Nodes(ctx, d) },
		Columns: []kind.Column[metrics]{
			kind.NameColumn[metrics](),
			{Name: "cpu", Value: func(m *metrics) any { return m.Usage.Cpu().String() }},
			{Name: "memory", Value: func(m *metrics) any { return m.Usage.Memory().String() }},
			{Name: "Window", Format: "duration", Value: func(m *metrics) any { return m.Window.Duration.String() }},
		},
	})
}

// Pods are the resource usage of Pods.
func Pods(s Source) *kind.Def {
	type metrics = metricsv1beta1.PodMetrics
	sum := func(m *metrics, r corev1.ResourceName) string {
		var total corev1.ResourceList
		for _, c := range m.Containers {
			q := c.Usage[r]
			if total == nil {
				total = corev1.ResourceList{r: q.DeepCopy()}
				continue
			}
			t := total[r]
			t.Add(q)
			total[r] = t
		}
		q := total[r]
		return q.String()
	}
	return kind.Define(kind.Resource[metrics]{
		Traits: kind.Traits{
			GroupVersionKind: schema.GroupVersionKind{Group: metricsv1beta1.GroupName, Version: "v1beta1", Kind: "PodMetrics"},
			Plural:           "pods",
			StorageFolder:    "metrics.k8s.io/pods", Verbs: []string{"get", "list"},
		},
		Computed: func(ctx context.Context, d kind.Server, _ kind.Selection) ([]*metrics, error) { return s.Pods(ctx, d) },
		Columns: []kind.Column[metrics]{
			kind.NameColumn[metrics](),
			{Name: "cpu", Value: func(m *metrics) any { return sum(m, corev1.ResourceCPU) }},
			{Name: "memory", Value: func(m *metrics) any { return sum(m, corev1.ResourceMemory) }},
			{Name: "Window", Format: "duration", Value: func(m *metrics) any { return m.Window.Duration.String() }},
		},
	})
}
