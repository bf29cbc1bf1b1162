package mutate

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"proa.dev/kinds/kind"
)

// topologyLabels copies the zone and region of its node into the labels of a pod. It acts when a pod is created with a
// node, and when one is bound to a node, where the binding carries the labels to the pod.
func topologyLabels(ctx context.Context, a *kind.Admission) error {
	if a.Verb != "create" {
		return nil
	}
	var node string
	switch o := a.Object.(type) {
	case *corev1.Pod:
		if a.Sub != "" {
			return nil
		}
		node = o.Spec.NodeName
	case *corev1.Binding:
		if a.Sub != "binding" || o.Target.Kind != "Node" {
			return nil
		}
		node = o.Target.Name
	}
	if node == "" {
		return nil
	}
	o, err := a.Server.Get(ctx, schema.GroupResource{Resource: "nodes"}, "", node)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	a.Object.SetLabels(copyTopology(a.Object.GetLabels(), o.GetLabels()))
	return nil
}

// copyTopology copies the zone and region of a node into labels.
func copyTopology(labels, node map[string]string) map[string]string {
	for _, key := range []string{corev1.LabelTopologyZone, corev1.LabelTopologyRegion} {
		if place, ok := node[key]; ok {
			if labels == nil {
				labels = map[string]string{}
			}
			labels[key] = place
		}
	}
	return labels
}
