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

// podSecurityPlugin checks pods against the Pod Security Standards that the labels of their namespace name. Pods are
// rejected. Objects with a pod template only cause a warning, because their pods will be rejected later.
type podSecurityPlugin struct {
	podSecurityConfig
	evaluator func() (policy.Evaluator, error)
}

func podSecurity(c podSecurityConfig) func(context.Context, *kind.Admission) error {
	g := &podSecurityPlugin{podSecurityConfig: c, evaluator: sync.OnceValues(func() (policy.Evaluator, error) {
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
			g.warnOfTemplate(ctx, a, meta, spec)
		}
		return nil
	}
}

// template returns the pod template of a workload object.
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

// note adds an annotation of Pod Security to the audit record.
func note(a *kind.Admission, key, value string) {
	a.AddAuditAnnotation(psa.AuditAnnotationPrefix+key, value)
}

// isExempt reports whether the user or the namespace is exempt.
func (g *podSecurityPlugin) isExempt(a *kind.Admission) bool {
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

// policyOf returns the policy of a namespace.
func (g *podSecurityPlugin) policyOf(ctx context.Context, a *kind.Admission) (psa.Policy, field.ErrorList, error) {
	o, err := a.Server.Get(ctx, schema.GroupResource{Resource: "namespaces"}, "", a.Namespace)
	if err != nil {
		return psa.Policy{}, nil, err
	}
	p, errs := psa.PolicyToEvaluate(o.GetLabels(), g.defaults)
	return p, errs, nil
}

// pod rejects a pod that violates the policy of its namespace.
func (g *podSecurityPlugin) pod(ctx context.Context, a *kind.Admission) error {
	switch a.Sub {
	case "exec", "attach", "binding", "eviction", "log", "portforward", "proxy", "status":
		return nil
	}
	pod, ok := a.Object.(*corev1.Pod)
	if !ok || g.isExempt(a) {
		return nil
	}
	p, bad, err := g.policyOf(ctx, a)
	if err != nil {
		text := fmt.Sprintf("failed to lookup namespace %q", a.Namespace)
		note(a, "error", fmt.Sprintf("Internal error occurred: %s: %v", text, err))
		return apierrors.NewInternalError(fmt.Errorf("%s", text))
	}
	if len(bad) == 0 && p.FullyPrivileged() {
		note(a, psa.EnforcedPolicyAnnotationKey, psa.LevelVersion{Level: psa.LevelPrivileged, Version: psa.LatestVersion()}.String())
		return nil
	}
	if old, ok := a.Old.(*corev1.Pod); ok && !needsCheck(&pod.Spec, &old.Spec) {
		return nil
	}
	if g.isExemptRuntime(&pod.Spec) {
		note(a, psa.ExemptionReasonAnnotationKey, "runtimeClass")
		return nil
	}
	result, err := g.evaluate(p.Enforce, &pod.ObjectMeta, &pod.Spec)
	if err != nil {
		return err
	}
	g.report(a, report{policy: p, invalid: bad, meta: &pod.ObjectMeta, spec: &pod.Spec, warn: result.Allowed})
	note(a, psa.EnforcedPolicyAnnotationKey, p.Enforce.String())
	if !result.Allowed {
		return apierrors.NewForbidden(a.Def.Resource(), a.Name,
			fmt.Errorf("violates PodSecurity %q: %s", p.Enforce.String(), result.ForbiddenDetail()))
	}
	return nil
}

// warnOfTemplate warns of a pod template that violates the policy.
func (g *podSecurityPlugin) warnOfTemplate(ctx context.Context, a *kind.Admission, meta *metav1.ObjectMeta, spec *corev1.PodSpec) {
	if g.isExempt(a) {
		return
	}
	p, bad, err := g.policyOf(ctx, a)
	if err != nil {
		note(a, "error", fmt.Sprintf("failed to lookup namespace %q: %v", a.Namespace, err))
		return
	}
	if len(bad) == 0 && p.Warn.Level == psa.LevelPrivileged && p.Audit.Level == psa.LevelPrivileged {
		return
	}
	if g.isExemptRuntime(spec) {
		note(a, psa.ExemptionReasonAnnotationKey, "runtimeClass")
		return
	}
	g.report(a, report{policy: p, invalid: bad, meta: meta, spec: spec, warn: true})
}

// report is a pod that the audit and warn policies of its namespace are evaluated for.
type report struct {
	policy  psa.Policy
	invalid field.ErrorList // what is wrong with the labels of the namespace
	meta    *metav1.ObjectMeta
	spec    *corev1.PodSpec
	warn    bool // the write is not rejected, so that its user gets warnings
}

// report adds violations of the audit policy to the audit record, and warns of violations of the warn policy.
func (g *podSecurityPlugin) report(a *kind.Admission, r report) {
	if err := r.invalid.ToAggregate(); err != nil {
		note(a, "error", fmt.Sprintf("Failed to parse policy: %v", err))
	}
	describe := func(lv psa.LevelVersion) string {
		result, err := g.evaluate(lv, r.meta, r.spec)
		if err != nil || result.Allowed {
			return ""
		}
		return fmt.Sprintf("would violate PodSecurity %q: %s", lv.String(), result.ForbiddenDetail())
	}
	if text := describe(r.policy.Audit); text != "" {
		note(a, psa.AuditViolationsAnnotationKey, text)
	}
	if text := describe(r.policy.Warn); r.warn && text != "" {
		a.Warn(text)
	}
}

func (g *podSecurityPlugin) evaluate(lv psa.LevelVersion, meta *metav1.ObjectMeta, spec *corev1.PodSpec) (policy.AggregateCheckResult,
	error) {
	e, err := g.evaluator()
	if err != nil {
		return policy.AggregateCheckResult{}, err
	}
	return policy.AggregateCheckResults(e.EvaluatePod(lv, meta, spec)), nil
}

func (g *podSecurityPlugin) isExemptRuntime(spec *corev1.PodSpec) bool {
	return spec.RuntimeClassName != nil && *spec.RuntimeClassName != "" &&
		slices.Contains(g.Exemptions.RuntimeClasses, *spec.RuntimeClassName)
}

// needsCheck reports whether an update of a pod is evaluated. Of what the standards are about only images and ephemeral
// containers can change, and a pod that was admitted before must not keep a user from removing a finalizer.
func needsCheck(spec, old *corev1.PodSpec) bool {
	same := func(a, b corev1.Container) bool { return a.Image == b.Image }
	if !slices.EqualFunc(spec.Containers, old.Containers, same) || !slices.EqualFunc(spec.InitContainers, old.InitContainers, same) {
		return true
	}
	for _, c := range spec.EphemeralContainers {
		if !slices.ContainsFunc(old.EphemeralContainers,
			func(o corev1.EphemeralContainer) bool { return o.Name == c.Name && o.Image == c.Image }) {
			return true
		}
	}
	return false
}
