// Package validate is hop 6 of 12: the built-in admission plugins that look at an object as it will be stored and may only
// refuse it. Each is one file: a pure decision on values, and a few lines that fetch what it decides by. A write that is none
// of a plugin's business costs it one type assertion.
//
// The plugins are those that upstream has switched on, in upstream's order and under its names.
package validate

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"proa.dev/kinds/kind"
)

// Plugins are the plugins of hop 6, in order.
func Plugins() []kind.Plugin {
	return []kind.Plugin{
		{Name: "LimitRanger", Admit: limitRanger},
		{Name: "ServiceAccount", Admit: serviceAccount},
		{Name: "Priority", Admit: oneDefaultPriority},
		{Name: "PersistentVolumeClaimResize", Admit: claimResize},
		{Name: "RuntimeClass", Admit: runtimeClass},
		{Name: "CertificateApproval", Admit: approval},
		{Name: "CertificateSigning", Admit: signing},
		{Name: "ClusterTrustBundleAttest", Admit: attest},
		{Name: "CertificateSubjectRestriction", Admit: subject},
		{Name: "NodeDeclaredFeatureValidator", Admit: nodeFeatures},
		{Name: "PodResizeValidator", Admit: podResize},
		{Name: "ResourceQuota", Admit: resourceQuota(nil)},
	}
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
