package apiregistration

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
)

// The label of the APIServices that the server manages, and its values: for built-in groups, and for those of custom resources.
const (
	AutomanagedLabel   = "kube-aggregator.kubernetes.io/automanaged"
	AutomanagedOnStart = "onstart"
	Automanaged        = "true"
)

// The priorities of the groups of custom resources, and of their versions.
const (
	customGroupPriority   = 1000
	customVersionPriority = 100
)

// groupPriorities returns the order in which clients try the groups of a resource that is in several.
func groupPriorities() map[string]int32 {
	return map[string]int32{
		"": 18000, "apps": 17800, "events.k8s.io": 17750, "authentication.k8s.io": 17700, "authorization.k8s.io": 17600,
		"autoscaling": 17500,
		"batch":       17400, "certificates.k8s.io": 17300, "networking.k8s.io": 17200, "policy": 17100, "rbac.authorization.k8s.io": 17000,
		"storage.k8s.io": 16800, "apiextensions.k8s.io": 16700, "admissionregistration.k8s.io": 16700, "scheduling.k8s.io": 16600,
		"coordination.k8s.io": 16500, "node.k8s.io": 16300, "discovery.k8s.io": 16200, "resource.k8s.io": 16200,
		"flowcontrol.apiserver.k8s.io": 16100, "storagemigration.k8s.io": 15800,
		"metrics.k8s.io": 100, // the priority with which metrics-server registers it
		"trace.proa.dev": 90,
	}
}

// versionPriority returns the order in which clients try the versions of a group.
func versionPriority(gv schema.GroupVersion) int32 {
	switch gv {
	case schema.GroupVersion{Version: "v1"}:
		return 1
	case schema.GroupVersion{Group: "autoscaling", Version: "v2"}:
		return 30
	case schema.GroupVersion{Group: "flowcontrol.apiserver.k8s.io", Version: "v1"}, schema.GroupVersion{Group: "resource.k8s.io",
		Version: "v1"}:
		return 21
	case schema.GroupVersion{Group: "metrics.k8s.io", Version: "v1beta1"}:
		return 100
	}
	return 15
}

// Priorities returns the priorities of a group version that this server serves. The group apiregistration.k8s.io
// comes before all others, and groups of custom resources come after built-in ones.
func Priorities(gv schema.GroupVersion) (group, version int32) {
	if gv.Group == apiregistrationv1.GroupName {
		return 20001, 1000
	}
	if group, builtIn := groupPriorities()[gv.Group]; builtIn {
		return group, versionPriority(gv)
	}
	return customGroupPriority, customVersionPriority
}

// Custom returns the APIService for a group version of custom resources.
func Custom(gv schema.GroupVersion) *apiregistrationv1.APIService {
	return &apiregistrationv1.APIService{
		TypeMeta:   metav1.TypeMeta{APIVersion: apiregistrationv1.SchemeGroupVersion.String(), Kind: "APIService"},
		ObjectMeta: metav1.ObjectMeta{Name: gv.Version + "." + gv.Group, Labels: map[string]string{AutomanagedLabel: Automanaged}},
		Spec: apiregistrationv1.APIServiceSpec{
			Group: gv.Group, Version: gv.Version, GroupPriorityMinimum: customGroupPriority, VersionPriority: customVersionPriority,
		},
	}
}

// Local returns the APIServices for group versions that the server serves itself. It omits those that are unknown,
// such as its own group and those of custom resources.
func Local(served []schema.GroupVersion) []*apiregistrationv1.APIService {
	var services []*apiregistrationv1.APIService
	for _, gv := range served {
		priority, known := groupPriorities()[gv.Group]
		if !known {
			continue
		}
		services = append(services, &apiregistrationv1.APIService{
			TypeMeta: metav1.TypeMeta{APIVersion: apiregistrationv1.SchemeGroupVersion.String(), Kind: "APIService"},
			ObjectMeta: metav1.ObjectMeta{Name: gv.Version + "." + gv.Group,
				Labels: map[string]string{AutomanagedLabel: AutomanagedOnStart}},
			Spec: apiregistrationv1.APIServiceSpec{Group: gv.Group, Version: gv.Version, GroupPriorityMinimum: priority,
				VersionPriority: versionPriority(gv)},
		})
	}
	return services
}
