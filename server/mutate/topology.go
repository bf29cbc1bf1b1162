package mutate

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"proa.dev/kinds/kind"
)

// topologyLabels tells a pod, through its labels, in which zone and region it runs: those of its node. It acts when a pod
// is made on a node, and when one is bound to a node, whose labels the binding carries to the pod.
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
	o, err := a.Door.Get(ctx, schema.GroupResource{Resource: "nodes"}, "", node)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	a.Object.SetLabels(withTopology(a.Object.GetLabels(), o.GetLabels()))
	return nil
}

// withTopology copies a node's place into labels.
func withTopology(labels, node map[string]string) map[string]string {
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
