//go:build defs

package main

import (
	"cmp"
	"slices"

	admission "k8s.io/api/admission/v1"
	admissionbeta "k8s.io/api/admission/v1beta1"
	imagepolicy "k8s.io/api/imagepolicy/v1alpha1"
	apiextensions "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensionsbeta "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1beta1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
	apiregistration "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	apiregistrationbeta "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1beta1"
	metrics "k8s.io/metrics/pkg/apis/metrics/v1beta1"
)

// kindsByName returns the groups, versions and kinds under which a type is registered, in the order of the extension
// x-kubernetes-group-version-kind.
func kindsByName() map[string][]any {
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		scheme.AddToScheme, apiextensions.AddToScheme, apiextensionsbeta.AddToScheme,
		apiregistration.AddToScheme, apiregistrationbeta.AddToScheme,
		admission.AddToScheme, admissionbeta.AddToScheme, imagepolicy.AddToScheme,
	} {
		if err := add(s); err != nil {
			panic(err)
		}
	}
	// Not by AddToScheme: upstream does not list the types that all groups share in this group.
	s.AddKnownTypes(metrics.SchemeGroupVersion, &metrics.NodeMetrics{}, &metrics.NodeMetricsList{}, &metrics.PodMetrics{},
		&metrics.PodMetricsList{})
	gvks := map[string][]schema.GroupVersionKind{}
	for gvk := range s.AllKnownTypes() {
		if gvk.Version == runtime.APIVersionInternal {
			continue
		}
		name, err := s.ToOpenAPIDefinitionName(gvk)
		if err != nil {
			panic(err)
		}
		gvks[name] = append(gvks[name], gvk)
	}
	out := map[string][]any{}
	for name, list := range gvks {
		slices.SortFunc(list, func(a, b schema.GroupVersionKind) int {
			return cmp.Or(cmp.Compare(a.Group, b.Group), cmp.Compare(a.Version, b.Version), cmp.Compare(a.Kind, b.Kind))
		})
		for _, g := range list {
			out[name] = append(out[name], map[string]any{"group": g.Group, "kind": g.Kind, "version": g.Version})
		}
	}
	return out
}
