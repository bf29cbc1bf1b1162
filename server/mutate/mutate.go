// Package mutate is hop 4 of 12: the built-in admission plugins that may change an object before it is validated. Each
// is one file: a pure decision on values, and a few lines that read what it depends on. A write that does not concern a
// plugin costs it one type assertion.
//
// The plugins have upstream's names and are in its order, because a plugin sees what those before it have added.
package mutate

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"proa.dev/kinds/kind"
	"proa.dev/kinds/lib/placement"
	"proa.dev/server/admissionlib"
)

// Plugins returns the plugins of hop 4, in order. config maps the name of a plugin to the text of its configuration.
// facts is what the addresses that nodes claim are checked against.
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
		{Name: "AlwaysPullImages", DisabledByDefault: true, Admit: alwaysPull},
		{Name: "PodNodeSelector", DisabledByDefault: true, Admit: podNodeSelector(selectors)},
		{Name: "Priority", Admit: priority},
		{Name: "DefaultTolerationSeconds", Admit: defaultTolerations},
		{Name: "PodTolerationRestriction", DisabledByDefault: true, Admit: podTolerations(tolerations)},
		{Name: "ExtendedResourceToleration", DisabledByDefault: true, Admit: tolerateExtendedResources},
		{Name: "DefaultStorageClass", Admit: defaultStorageClass},
		{Name: "StorageObjectInUseProtection", Admit: protectStorage},
		{Name: "RuntimeClass", Admit: runtimeClass},
		{Name: "DefaultIngressClass", Admit: defaultIngressClass},
		{Name: "PodTopologyLabels", Admit: topologyLabels},
	}, nil
}

// list reads the objects of a resource.
func list[T any](ctx context.Context, a *kind.Admission, group, resource, namespace string) ([]T, error) {
	return admissionlib.List[T](ctx, a.Server, schema.GroupResource{Group: group, Resource: resource}, namespace)
}
