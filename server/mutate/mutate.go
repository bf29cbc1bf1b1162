// Package mutate is hop 4 of 12: the built-in admission plugins that change an object before it is checked. Each is one
// file: a pure decision on values, and a few lines that fetch what it decides by. A write that is none of a plugin's business
// costs it one type assertion.
//
// The plugins have upstream's names and are in its order, because what one adds the next one sees.
package mutate

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"proa.dev/kinds/kind"
	"proa.dev/kinds/placement"
)

// Plugins are the plugins of hop 4, in order. What an administrator has to say about a plugin is the text under its name. The
// addresses that nodes claim are checked against facts.
func Plugins(config map[string][]byte, facts NodeFacts) ([]kind.Plugin, error) {
	selectors, err := placement.ReadSelectors(config["PodNodeSelector"])
	if err != nil {
		return nil, fmt.Errorf("the configuration of PodNodeSelector: %w", err)
	}
	tolerations, err := placement.ReadTolerations(config["PodTolerationRestriction"])
	if err != nil {
		return nil, fmt.Errorf("the configuration of PodTolerationRestriction: %w", err)
	}
	return []kind.Plugin{
		{Name: "LimitRanger", Admit: limitRanger},
		{Name: "ServiceAccount", Admit: serviceAccount},
		{Name: "NodeRestriction", Admit: nodeRestriction(facts)},
		{Name: "TaintNodesByCondition", Admit: taintNodes},
		{Name: "AlwaysPullImages", Off: true, Admit: alwaysPull},
		{Name: "PodNodeSelector", Off: true, Admit: podNodeSelector(selectors)},
		{Name: "Priority", Admit: priority},
		{Name: "DefaultTolerationSeconds", Admit: tolerateBadNodes},
		{Name: "PodTolerationRestriction", Off: true, Admit: podTolerations(tolerations)},
		{Name: "ExtendedResourceToleration", Off: true, Admit: tolerateDevices},
		{Name: "DefaultStorageClass", Admit: defaultStorageClass},
		{Name: "StorageObjectInUseProtection", Admit: protectStorage},
		{Name: "RuntimeClass", Admit: runtimeClass},
		{Name: "DefaultIngressClass", Admit: defaultIngressClass},
		{Name: "PodTopologyLabels", Admit: topologyLabels},
	}, nil
}

// newPod is the pod that a write creates, or nil.
func newPod(a *kind.Admission) *corev1.Pod {
	if pod, ok := a.Object.(*corev1.Pod); ok && a.Creates() {
		return pod
	}
	return nil
}

// all reads the objects of a resource.
func all[T any](ctx context.Context, a *kind.Admission, group, resource, namespace string) ([]T, error) {
	seq, err := a.Door.List(ctx, schema.GroupResource{Group: group, Resource: resource}, namespace)
	if err != nil {
		return nil, err
	}
	var out []T
	for o := range seq {
		if x, ok := o.(T); ok {
			out = append(out, x)
		}
	}
	return out, nil
}
