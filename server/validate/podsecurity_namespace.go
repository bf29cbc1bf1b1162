package validate

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	psa "k8s.io/pod-security-admission/api"

	"proa.dev/kinds/kind"
	"proa.dev/server/admissionlib"
)

// How many pods of a namespace are checked when its policy becomes stricter, and for how long.
const (
	podsToCheck  = 3000
	timeForCheck = time.Second
)

// namespace rejects invalid labels, and warns of existing pods that violate a stricter policy.
func (g *podSecurityPlugin) namespace(ctx context.Context, a *kind.Admission) error {
	ns, ok := a.Object.(*corev1.Namespace)
	if !ok || a.Sub != "" {
		return nil
	}
	p, bad := psa.PolicyToEvaluate(ns.Labels, g.defaults)
	var was psa.Policy
	if a.Old != nil {
		old, oldBad := psa.PolicyToEvaluate(a.Old.GetLabels(), g.defaults)
		if was = old; reflect.DeepEqual(bad, oldBad) {
			bad = nil // labels that were invalid before do not prevent other changes
		}
	}
	if len(bad) > 0 {
		return apierrors.NewInvalid(schema.GroupKind{Kind: "Namespace"}, ns.Name, bad)
	}
	if a.Old != nil && !isStricter(p.Enforce, was.Enforce) {
		return nil
	}
	if slices.Contains(g.Exemptions.Namespaces, ns.Name) {
		if !p.FullyPrivileged() && !p.Equivalent(&g.defaults) {
			a.Warn(fmt.Sprintf("namespace %q is exempt from Pod Security, and the policy (%s) will be ignored", ns.Name, ignoredLabels(p, ns.Labels)))
		}
		return nil
	}
	if a.Old == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, checkTimeout(ctx))
	defer cancel()
	pods, err := admissionlib.List[*corev1.Pod](ctx, a.Server, schema.GroupResource{Resource: "pods"}, ns.Name)
	if err != nil {
		a.Warn("failed to list pods while checking new PodSecurity enforce level")
		return nil
	}
	a.Warn(g.violationsOf(ctx, ns.Name, p.Enforce, pods)...)
	return nil
}

// isStricter reports whether pods may exist that were admitted before and would not be now.
func isStricter(now, was psa.LevelVersion) bool {
	if now == was || now.Level == psa.LevelPrivileged {
		return false
	}
	return now.Version != was.Version || psa.CompareLevels(now.Level, was.Level) > 0
}

// checkTimeout returns the time for checking pods: at most half of what the request has left.
func checkTimeout(ctx context.Context) time.Duration {
	if end, ok := ctx.Deadline(); ok {
		return min(timeForCheck, time.Until(end)/2)
	}
	return timeForCheck
}

// ignoredLabels lists the policies that the labels of an exempt namespace name without effect.
func ignoredLabels(p psa.Policy, labels map[string]string) string {
	var parts []string
	for _, mode := range []struct {
		name, level, version string
		is                   psa.LevelVersion
	}{
		{"enforce", psa.EnforceLevelLabel, psa.EnforceVersionLabel, p.Enforce},
		{"audit", psa.AuditLevelLabel, psa.AuditVersionLabel, p.Audit},
		{"warn", psa.WarnLevelLabel, psa.WarnVersionLabel, p.Warn},
	} {
		_, level := labels[mode.level]
		_, version := labels[mode.version]
		if mode.is.Level != psa.LevelPrivileged && (level || version) {
			parts = append(parts, mode.name+"="+mode.is.String())
		}
	}
	return strings.Join(parts, ", ")
}

// violationsOf returns warnings about existing pods that violate a new policy. Pods with the same violation share a
// warning.
func (g *podSecurityPlugin) violationsOf(ctx context.Context, namespace string, lv psa.LevelVersion,
	pods []*corev1.Pod) (warnings []string) {
	pods = g.samplesFirst(pods)
	checked := min(len(pods), podsToCheck)
	names := map[string][]string{}
	for i, pod := range pods[:checked] {
		result, err := g.evaluate(lv, &pod.ObjectMeta, &pod.Spec)
		if err == nil && !result.Allowed {
			names[result.ForbiddenReason()] = append(names[result.ForbiddenReason()], pod.Name)
		}
		if ctx.Err() != nil {
			checked = i + 1
			break
		}
	}
	if checked < len(pods) {
		warnings = append(warnings, fmt.Sprintf("new PodSecurity enforce level only checked against the first %d of %d existing pods", checked, len(pods)))
	}
	if len(names) > 0 {
		warnings = append(warnings, fmt.Sprintf("existing pods in namespace %q violate the new PodSecurity enforce level %q", namespace, lv.String()))
	}
	var texts []string
	for fault, pods := range names {
		first := slices.Min(pods)
		switch n := len(pods) - 1; n {
		case 0:
			texts = append(texts, fmt.Sprintf("%s: %s", first, fault))
		case 1:
			texts = append(texts, fmt.Sprintf("%s (and 1 other pod): %s", first, fault))
		default:
			texts = append(texts, fmt.Sprintf("%s (and %d other pods): %s", first, n, fault))
		}
	}
	slices.Sort(texts)
	return append(warnings, texts...)
}

// samplesFirst puts one pod of each controller before the others of the same controller, which have the same spec. Pods
// of exempt runtimes are left out.
func (g *podSecurityPlugin) samplesFirst(pods []*corev1.Pod) []*corev1.Pod {
	var first, rest []*corev1.Pod
	seen := map[types.UID]bool{}
	for _, pod := range pods {
		if g.isExemptRuntime(&pod.Spec) {
			continue
		}
		if owner := metav1.GetControllerOfNoCopy(pod); owner != nil {
			if seen[owner.UID] {
				rest = append(rest, pod)
				continue
			}
			seen[owner.UID] = true
		}
		first = append(first, pod)
	}
	return append(first, rest...)
}
