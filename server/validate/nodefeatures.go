package validate

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/version"
	features "k8s.io/component-helpers/nodedeclaredfeatures"

	"proa.dev/kinds/kind"
)

// nodeFeatures rejects changes of a running pod for which its node has not declared the features.
func nodeFeatures(ctx context.Context, a *kind.Admission) error {
	pod, ok := a.Object.(*corev1.Pod)
	if !ok || a.Verb != "update" || a.Sub != "" && a.Sub != "resize" || pod.Spec.NodeName == "" {
		return nil
	}
	old, ok := a.Old.(*corev1.Pod)
	if !ok || old.Generation == pod.Generation {
		return nil
	}
	wanted, err := features.DefaultFramework.InferForPodUpdate(
		&features.PodInfo{Spec: &old.Spec, Status: &old.Status}, &features.PodInfo{Spec: &pod.Spec, Status: &pod.Status},
		version.MajorMinor(1, 37))
	if err != nil {
		return a.Forbidf("failed to infer pod capability requirements: %w", err)
	}
	if wanted.IsEmpty() {
		return nil
	}
	node, err := nodeOf(ctx, a, pod)
	if err != nil {
		return a.Forbid(err)
	}
	match, err := features.DefaultFramework.MatchNode(wanted, node)
	if err != nil {
		return a.Forbidf("failed to match pod requirements against node %q: %w", node.Name, err)
	}
	if !match.IsMatch {
		return a.Forbidf("pod update requires features %s which are not available on node %q",
			strings.Join(match.UnsatisfiedRequirements, ", "), node.Name)
	}
	return nil
}

// nodeOf returns the node that a pod runs on.
func nodeOf(ctx context.Context, a *kind.Admission, pod *corev1.Pod) (*corev1.Node, error) {
	name := pod.Spec.NodeName
	o, err := a.Server.Get(ctx, schema.GroupResource{Resource: "nodes"}, "", name)
	if apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("node %q not found", name)
	}
	if err != nil {
		return nil, fmt.Errorf("failed to get node %q: %w", name, err)
	}
	node, ok := o.(*corev1.Node)
	if !ok {
		return nil, fmt.Errorf("unexpected type %T", o)
	}
	return node, nil
}
