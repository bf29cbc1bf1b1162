package validate

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"proa.dev/kinds/kind"
	"proa.dev/server/admissionlib"
)

// The plugins in this file are small and off by default.

// limitAntiAffinity rejects pods whose required anti-affinity covers more than a node, such as a zone or the whole
// cluster.
func limitAntiAffinity(_ context.Context, a *kind.Admission) error {
	pod, ok := a.Object.(*corev1.Pod)
	if !ok || a.Sub != "" || pod.Spec.Affinity == nil || pod.Spec.Affinity.PodAntiAffinity == nil {
		return nil
	}
	for _, t := range pod.Spec.Affinity.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution {
		if t.TopologyKey != corev1.LabelHostname {
			return apierrors.NewForbidden(a.Def.Resource(), pod.Name, fmt.Errorf(
				"affinity.PodAntiAffinity.RequiredDuringScheduling has TopologyKey %v but only key %v is allowed", t.TopologyKey, corev1.LabelHostname))
		}
	}
	return nil
}

// noExternalIPs rejects services with external IPs, which the cluster does not assign.
func noExternalIPs(_ context.Context, a *kind.Admission) error {
	s, ok := a.Object.(*corev1.Service)
	if !ok || a.Sub != "" {
		return nil
	}
	var had []string
	if old, ok := a.Old.(*corev1.Service); ok {
		had = old.Spec.ExternalIPs
	}
	if slices.ContainsFunc(s.Spec.ExternalIPs, func(ip string) bool { return !slices.Contains(had, ip) }) {
		return a.Forbidf("Use of external IPs is denied by admission control")
	}
	return nil
}

// checkPullPolicy rejects a pod whose pull policy was changed after hop 4 had set it to Always.
func checkPullPolicy(_ context.Context, a *kind.Admission) error {
	pod, ok := a.Object.(*corev1.Pod)
	if !ok || a.Sub != "" {
		return nil
	}
	if old, ok := a.Old.(*corev1.Pod); ok && !admissionlib.HasNewImages(&pod.Spec, &old.Spec) {
		return nil
	}
	var errs []error
	check := func(at *field.Path, p corev1.PullPolicy) {
		if p != corev1.PullAlways {
			errs = append(errs, a.Forbid(field.NotSupported(at, p, []corev1.PullPolicy{corev1.PullAlways})))
		}
	}
	spec := field.NewPath("spec")
	for i, c := range pod.Spec.InitContainers {
		check(spec.Child("initContainers").Index(i).Child("imagePullPolicy"), c.ImagePullPolicy)
	}
	for i, c := range pod.Spec.Containers {
		check(spec.Child("containers").Index(i).Child("imagePullPolicy"), c.ImagePullPolicy)
	}
	for i, c := range pod.Spec.EphemeralContainers {
		check(spec.Child("ephemeralContainers").Index(i).Child("imagePullPolicy"), c.ImagePullPolicy)
	}
	for i, v := range pod.Spec.Volumes {
		if v.Image != nil {
			check(spec.Child("volumes").Index(i).Child("image", "pullPolicy"), v.Image.PullPolicy)
		}
	}
	return utilerrors.NewAggregate(errs)
}

// namespaceExists rejects writes, including deletions, in namespaces that do not exist.
func namespaceExists(ctx context.Context, a *kind.Admission) error {
	if a.Namespace == "" || a.Def.Scope != kind.Namespaced {
		return nil
	}
	_, err := a.Server.Get(ctx, schema.GroupResource{Resource: "namespaces"}, "", a.Namespace)
	if err == nil || apierrors.IsNotFound(err) {
		return err
	}
	return apierrors.NewInternalError(err)
}

// denyAll rejects every write.
func denyAll(_ context.Context, a *kind.Admission) error {
	return a.Forbidf("admission control is denying all modifications")
}
