package validate

import (
	"context"
	"fmt"
	"slices"
	"sync"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	psa "k8s.io/pod-security-admission/api"
	"k8s.io/pod-security-admission/policy"

	"proa.dev/kinds/kind"
)

// guard holds pods to the security standards that the labels of their namespace name. Pods are refused; of what only makes
// pods the user is warned, because its pods will be refused later.
type guard struct {
	podSecurityConfig
	evaluator func() (policy.Evaluator, error)
}

func podSecurity(c podSecurityConfig) func(context.Context, *kind.Admission) error {
	g := &guard{podSecurityConfig: c, evaluator: sync.OnceValues(func() (policy.Evaluator, error) {
		return policy.NewEvaluator(policy.DefaultChecks(), nil)
	})}
	return func(ctx context.Context, a *kind.Admission) error {
		if a.Verb != "create" && a.Verb != "update" {
			return nil
		}
		switch a.Def.Resource() {
		case schema.GroupResource{Resource: "namespaces"}:
			return g.namespace(ctx, a)
		case schema.GroupResource{Resource: "pods"}:
			return g.pod(ctx, a)
		}
		if meta, spec := template(a.Object); spec != nil && a.Sub == "" {
			g.maker(ctx, a, meta, spec)
		}
		return nil
	}
}

// template is the pod that an object of a workload makes.
func template(o kind.Object) (*metav1.ObjectMeta, *corev1.PodSpec) {
	var t *corev1.PodTemplateSpec
	switch o := o.(type) {
	case *corev1.PodTemplate:
		t = &o.Template
	case *corev1.ReplicationController:
		t = o.Spec.Template
	case *appsv1.ReplicaSet:
		t = &o.Spec.Template
	case *appsv1.Deployment:
		t = &o.Spec.Template
	case *appsv1.DaemonSet:
		t = &o.Spec.Template
	case *appsv1.StatefulSet:
		t = &o.Spec.Template
	case *batchv1.Job:
		t = &o.Spec.Template
	case *batchv1.CronJob:
		t = &o.Spec.JobTemplate.Spec.Template
	}
	if t == nil {
		return nil, nil
	}
	return &t.ObjectMeta, &t.Spec
}

// note adds to the audit trail under the name of the standard.
func note(a *kind.Admission, key, value string) { a.Note(psa.AuditAnnotationPrefix+key, value) }

// exempt says that nobody looks at what this user does, or at what is in this namespace.
func (g *guard) exempt(a *kind.Admission) bool {
	why := ""
	switch {
	case slices.Contains(g.Exemptions.Namespaces, a.Namespace):
		why = "namespace"
	case a.User.GetName() != "" && slices.Contains(g.Exemptions.Usernames, a.User.GetName()):
		why = "user"
	default:
		return false
	}
	note(a, psa.ExemptionReasonAnnotationKey, why)
	return true
}

// standard is what a namespace demands of its pods.
func (g *guard) standard(ctx context.Context, a *kind.Admission) (psa.Policy, field.ErrorList, error) {
	o, err := a.Door.Get(ctx, schema.GroupResource{Resource: "namespaces"}, "", a.Namespace)
	if err != nil {
		return psa.Policy{}, nil, err
	}
	p, errs := psa.PolicyToEvaluate(o.GetLabels(), g.defaults)
	return p, errs, nil
}

// pod refuses a pod that does not keep to the standard of its namespace.
func (g *guard) pod(ctx context.Context, a *kind.Admission) error {
	switch a.Sub {
	case "exec", "attach", "binding", "eviction", "log", "portforward", "proxy", "status":
		return nil
	}
	pod, ok := a.Object.(*corev1.Pod)
	if !ok || g.exempt(a) {
		return nil
	}
	p, bad, err := g.standard(ctx, a)
	if err != nil {
		text := fmt.Sprintf("failed to lookup namespace %q", a.Namespace)
		note(a, "error", fmt.Sprintf("Internal error occurred: %s: %v", text, err))
		return apierrors.NewInternalError(fmt.Errorf("%s", text))
	}
	if len(bad) == 0 && p.FullyPrivileged() {
		note(a, psa.EnforcedPolicyAnnotationKey, psa.LevelVersion{Level: psa.LevelPrivileged, Version: psa.LatestVersion()}.String())
		return nil
	}
	if old, ok := a.Old.(*corev1.Pod); ok && !matters(&pod.Spec, &old.Spec) {
		return nil
	}
	if g.exemptRuntime(&pod.Spec) {
		note(a, psa.ExemptionReasonAnnotationKey, "runtimeClass")
		return nil
	}
	result, err := g.judge(p.Enforce, &pod.ObjectMeta, &pod.Spec)
	if err != nil {
		return err
	}
	g.remark(a, p, bad, &pod.ObjectMeta, &pod.Spec, result.Allowed)
	note(a, psa.EnforcedPolicyAnnotationKey, p.Enforce.String())
	if !result.Allowed {
		return apierrors.NewForbidden(a.Def.Resource(), a.Name, fmt.Errorf("violates PodSecurity %q: %s", p.Enforce.String(), result.ForbiddenDetail()))
	}
	return nil
}

// maker warns of what makes pods that do not keep to the standard.
func (g *guard) maker(ctx context.Context, a *kind.Admission, meta *metav1.ObjectMeta, spec *corev1.PodSpec) {
	if g.exempt(a) {
		return
	}
	p, bad, err := g.standard(ctx, a)
	if err != nil {
		note(a, "error", fmt.Sprintf("failed to lookup namespace %q: %v", a.Namespace, err))
		return
	}
	if len(bad) == 0 && p.Warn.Level == psa.LevelPrivileged && p.Audit.Level == psa.LevelPrivileged {
		return
	}
	if g.exemptRuntime(spec) {
		note(a, psa.ExemptionReasonAnnotationKey, "runtimeClass")
		return
	}
	g.remark(a, p, bad, meta, spec, true)
}

// remark tells the audit trail, and the user of a write that is not refused, what the standards for them say about a pod.
func (g *guard) remark(a *kind.Admission, p psa.Policy, bad field.ErrorList, meta *metav1.ObjectMeta, spec *corev1.PodSpec, warn bool) {
	if err := bad.ToAggregate(); err != nil {
		note(a, "error", fmt.Sprintf("Failed to parse policy: %v", err))
	}
	words := func(lv psa.LevelVersion) string {
		result, err := g.judge(lv, meta, spec)
		if err != nil || result.Allowed {
			return ""
		}
		return fmt.Sprintf("would violate PodSecurity %q: %s", lv.String(), result.ForbiddenDetail())
	}
	if text := words(p.Audit); text != "" {
		note(a, psa.AuditViolationsAnnotationKey, text)
	}
	if text := words(p.Warn); warn && text != "" {
		a.Warn(text)
	}
}

func (g *guard) judge(lv psa.LevelVersion, meta *metav1.ObjectMeta, spec *corev1.PodSpec) (policy.AggregateCheckResult, error) {
	e, err := g.evaluator()
	if err != nil {
		return policy.AggregateCheckResult{}, err
	}
	return policy.AggregateCheckResults(e.EvaluatePod(lv, meta, spec)), nil
}

func (g *guard) exemptRuntime(spec *corev1.PodSpec) bool {
	return spec.RuntimeClassName != nil && *spec.RuntimeClassName != "" && slices.Contains(g.Exemptions.RuntimeClasses, *spec.RuntimeClassName)
}

// matters says that an update of a pod is looked at. Of what the standards are about only images and ephemeral containers can
// change, and what was allowed before must not stop a user from removing a finalizer.
func matters(spec, old *corev1.PodSpec) bool {
	same := func(a, b corev1.Container) bool { return a.Image == b.Image }
	if !slices.EqualFunc(spec.Containers, old.Containers, same) || !slices.EqualFunc(spec.InitContainers, old.InitContainers, same) {
		return true
	}
	for _, c := range spec.EphemeralContainers {
		if !slices.ContainsFunc(old.EphemeralContainers, func(o corev1.EphemeralContainer) bool { return o.Name == c.Name && o.Image == c.Image }) {
			return true
		}
	}
	return false
}
