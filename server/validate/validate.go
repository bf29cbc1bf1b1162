// Package validate is hop 6 of 12: the built-in admission plugins that look at an object as it will be stored and may only
// refuse it. Each is one file: a pure decision on values, and a few lines that fetch what it decides by. A write that is none
// of a plugin's business costs it one type assertion.
//
// The plugins have upstream's names and are in its order, but for RestrictedEndpoints, which upstream does not have.
package validate

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"proa.dev/kinds/kind"
	"proa.dev/kinds/placement"
)

// Plugins are the plugins of hop 6, in order. What an administrator has to say about a plugin is the text under its name.
func Plugins(config map[string][]byte) ([]kind.Plugin, error) {
	limited, err := readQuota(config["ResourceQuota"])
	if err != nil {
		return nil, fmt.Errorf("the configuration of ResourceQuota: %w", err)
	}
	standards, err := readPodSecurity(config["PodSecurity"])
	if err != nil {
		return nil, fmt.Errorf("the configuration of PodSecurity: %w", err)
	}
	selectors, err := placement.ReadSelectors(config["PodNodeSelector"])
	if err != nil {
		return nil, fmt.Errorf("the configuration of PodNodeSelector: %w", err)
	}
	tolerations, err := placement.ReadTolerations(config["PodTolerationRestriction"])
	if err != nil {
		return nil, fmt.Errorf("the configuration of PodTolerationRestriction: %w", err)
	}
	events, err := readEventLimits(config["EventRateLimit"])
	if err != nil {
		return nil, fmt.Errorf("the configuration of EventRateLimit: %w", err)
	}
	return []kind.Plugin{
		{Name: "NamespaceExists", Off: true, Admit: namespaceExists},
		{Name: "LimitPodHardAntiAffinityTopology", Off: true, Admit: hostsOnly},
		{Name: "LimitRanger", Admit: limitRanger},
		{Name: "ServiceAccount", Admit: serviceAccount},
		{Name: "AlwaysPullImages", Off: true, Admit: pulledAlways},
		{Name: "PodSecurity", Admit: podSecurity(standards)},
		{Name: "PodNodeSelector", Off: true, Admit: podNodeSelector(selectors)},
		{Name: "Priority", Admit: oneDefaultPriority},
		{Name: "PodTolerationRestriction", Off: true, Admit: podTolerations(tolerations)},
		{Name: "EventRateLimit", Off: true, Admit: eventRate(events)},
		{Name: "OwnerReferencesPermissionEnforcement", Off: true, Admit: ownerRights},
		{Name: "PersistentVolumeClaimResize", Admit: claimResize},
		{Name: "RuntimeClass", Admit: runtimeClass},
		{Name: "CertificateApproval", Admit: approval},
		{Name: "CertificateSigning", Admit: signing},
		{Name: "ClusterTrustBundleAttest", Admit: attest},
		{Name: "CertificateSubjectRestriction", Admit: subject},
		{Name: "DenyServiceExternalIPs", Off: true, Admit: noExternalIPs},
		{Name: "RestrictedEndpoints", Admit: restrictedEndpoints},
		{Name: "NodeDeclaredFeatureValidator", Admit: nodeFeatures},
		{Name: "PodResizeValidator", Admit: podResize},
		{Name: "ResourceQuota", Admit: resourceQuota(limited)},
		{Name: "AlwaysDeny", Off: true, Admit: deny},
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
func all[T any](ctx context.Context, d kind.Door, gr schema.GroupResource, namespace string) ([]T, error) {
	seq, err := d.List(ctx, gr, namespace)
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
