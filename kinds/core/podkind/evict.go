package podkind

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"proa.dev/kinds/kind"
	"proa.dev/kinds/lib/defaulting"
)

// evictionTries bounds the retries of an eviction when the pod changes meanwhile.
const evictionTries = 20

// maxDisruptedPods bounds the evictions that the controller of a disruption budget has not observed yet.
const maxDisruptedPods = 2000

func budgetResource() schema.GroupResource {
	return schema.GroupResource{Group: "policy", Resource: "poddisruptionbudgets"}
}

// eviction is one request to evict a pod.
type eviction struct {
	door      kind.Server
	namespace string
	name      string
	options   *metav1.DeleteOptions // of the client
	dryRun    bool
}

// evictPod deletes a pod unless a disruption budget forbids it.
func evictPod(ctx context.Context, d kind.Server, call *kind.Call, _ *corev1.Pod) (kind.Object, error) {
	body, ok := call.Body.(*policyv1.Eviction)
	if !ok {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("not a Eviction object: %T", call.Body))
	}
	if call.Name != body.Name {
		return nil, apierrors.NewBadRequest("name in URL does not match name in Eviction object")
	}
	options := &metav1.DeleteOptions{}
	if body.DeleteOptions != nil {
		options = body.DeleteOptions
	}
	if ptr.Deref(options.IgnoreStoreReadErrorWithClusterBreakingPotential, false) {
		return nil, apierrors.NewInvalid(schema.GroupKind{Group: "policy", Kind: "Eviction"}, call.Name, field.ErrorList{field.Invalid(
			field.NewPath("deleteOptions", "ignoreStoreReadErrorWithClusterBreakingPotential"), true,
			"can not be set for pod eviction, try after removing the option")})
	}
	if call.DryRun && len(options.DryRun) == 0 {
		options.DryRun = []string{metav1.DryRunAll}
	}
	e := &eviction{door: d, namespace: call.Namespace, name: call.Name, options: options, dryRun: len(options.DryRun) > 0}
	p, deleted, err := e.evictWithoutBudget(ctx)
	if err != nil || deleted {
		return nil, err
	}
	return nil, e.evictWithBudget(ctx, p)
}

// evictWithoutBudget deletes a pod that no disruption budget counts: one that has ended, is pending or is being deleted.
// It returns the pod if budgets must be checked.
func (e *eviction) evictWithoutBudget(ctx context.Context) (*corev1.Pod, bool, error) {
	var err error
	for range evictionTries {
		o, failed := e.door.Get(ctx, podResource(), e.namespace, e.name)
		if failed != nil {
			return nil, false, failed
		}
		p := o.(*corev1.Pod)
		ended := isTerminal(p) || p.DeletionTimestamp != nil
		if !ended && p.Status.Phase != corev1.PodPending {
			return p, false, nil
		}
		options := e.options
		// A pending pod may become ready meanwhile, and a budget counts it then.
		if !ended && !e.hasResourceVersion() {
			options = withResourceVersion(options, p.ResourceVersion)
		}
		if err = e.deletePod(ctx, options); err == nil {
			return nil, true, nil
		}
		if !apierrors.IsConflict(err) || e.hasResourceVersion() {
			break
		}
	}
	return nil, false, err
}

// hasResourceVersion reports whether the client set a resourceVersion precondition.
func (e *eviction) hasResourceVersion() bool {
	return e.options.Preconditions != nil && e.options.Preconditions.ResourceVersion != nil
}

func withResourceVersion(options *metav1.DeleteOptions, version string) *metav1.DeleteOptions {
	options = options.DeepCopy()
	defaulting.IfNil(&options.Preconditions, metav1.Preconditions{})
	options.Preconditions.ResourceVersion = &version
	return options
}

// evictWithBudget deletes the pod if its disruption budget, if it has one, allows it.
func (e *eviction) evictWithBudget(ctx context.Context, p *corev1.Pod) error {
	budgets, err := e.budgets(ctx, p)
	if err != nil {
		return err
	}
	options, spared := e.options, ""
	switch len(budgets) {
	case 0:
	case 1:
		b := budgets[0]
		if !isReady(p) && allowsUnready(b) {
			// The pod does not count as healthy, so evicting it disrupts nothing, unless it becomes ready.
			options, spared = withResourceVersion(options, p.ResourceVersion), b.Name
		} else if err := e.useDisruption(ctx, b); err != nil {
			return err
		}
	default:
		return &apierrors.StatusError{ErrStatus: metav1.Status{
			Status: metav1.StatusFailure, Code: 500,
			Message: "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.",
		}}
	}
	err = e.deletePod(ctx, options)
	if spared != "" && apierrors.IsConflict(err) && !e.hasResourceVersion() {
		return budgetNotReady(spared)
	}
	return err
}

func (e *eviction) budgets(ctx context.Context, p *corev1.Pod) ([]*policyv1.PodDisruptionBudget, error) {
	list, err := e.door.List(ctx, budgetResource(), e.namespace)
	if err != nil {
		return nil, err
	}
	var found []*policyv1.PodDisruptionBudget
	for o := range list {
		b := o.(*policyv1.PodDisruptionBudget)
		if s, err := metav1.LabelSelectorAsSelector(b.Spec.Selector); err == nil && s.Matches(labels.Set(p.Labels)) {
			found = append(found, b)
		}
	}
	return found, nil
}

// allowsUnready reports whether a budget allows evicting pods that are not ready, whatever its count of disruptions.
func allowsUnready(b *policyv1.PodDisruptionBudget) bool {
	if p := b.Spec.UnhealthyPodEvictionPolicy; p != nil && *p == policyv1.AlwaysAllow {
		return true
	}
	return b.Status.CurrentHealthy >= b.Status.DesiredHealthy && b.Status.DesiredHealthy > 0
}

// useDisruption takes one allowed disruption from the budget.
func (e *eviction) useDisruption(ctx context.Context, b *policyv1.PodDisruptionBudget) error {
	_, err := e.door.Modify(ctx, budgetResource(), e.namespace, b.Name, e.dryRun, func(o kind.Object) error {
		b := o.(*policyv1.PodDisruptionBudget)
		if err := checkBudget(b); err != nil {
			return err
		}
		b.Status.DisruptionsAllowed--
		if b.Status.DisruptionsAllowed == 0 {
			meta.SetStatusCondition(&b.Status.Conditions, metav1.Condition{
				Type: policyv1.DisruptionAllowedCondition, Status: metav1.ConditionFalse,
				Reason: policyv1.InsufficientPodsReason, ObservedGeneration: b.Status.ObservedGeneration,
			})
		}
		if b.Status.DisruptedPods == nil {
			b.Status.DisruptedPods = map[string]metav1.Time{}
		}
		// The controller must not count this pod while it terminates.
		b.Status.DisruptedPods[e.name] = metav1.Time{Time: time.Now()}
		return nil
	})
	return err
}

// checkBudget returns an error if a budget forbids a disruption.
func checkBudget(b *policyv1.PodDisruptionBudget) error {
	because := func(err *apierrors.StatusError, message string) error {
		err.ErrStatus.Details.Causes = append(err.ErrStatus.Details.Causes,
			metav1.StatusCause{Type: policyv1.DisruptionBudgetCause, Message: message})
		return err
	}
	refused := func(short, long string) error {
		return because(apierrors.NewForbidden(schema.GroupResource{Group: "policy", Resource: "poddisruptionbudget"}, b.Name,
			errors.New(short)),
			fmt.Sprintf("The disruption budget %s does not allow evicting pods currently: %s", b.Name, long))
	}
	switch {
	case b.Status.ObservedGeneration < b.Generation:
		return budgetNotReady(b.Name)
	case b.Status.DisruptionsAllowed < 0:
		return refused("pdb disruptions allowed is negative", "pdb disruptions allowed is negative")
	case len(b.Status.DisruptedPods) > maxDisruptedPods:
		return refused("DisruptedPods map too big - too many evictions not confirmed by PDB controller", "too many pending evictions not confirmed by PDB controller")
	case b.Status.DisruptionsAllowed > 0:
		return nil
	}
	message := fmt.Sprintf("The disruption budget %s does not allow evicting pods currently", b.Name)
	c := meta.FindStatusCondition(b.Status.Conditions, policyv1.DisruptionAllowedCondition)
	hasMessage := c != nil && c.Status == metav1.ConditionFalse && c.Message != ""
	switch {
	case hasMessage && c.Reason == policyv1.SyncFailedReason:
		message += " because it failed sync: " + c.Message
	case b.Status.CurrentHealthy <= b.Status.DesiredHealthy:
		message = fmt.Sprintf("The disruption budget %s needs %d healthy pods and has %d currently", b.Name, b.Status.DesiredHealthy,
			b.Status.CurrentHealthy)
	case hasMessage:
		message += fmt.Sprintf(" (%s): %s", c.Reason, c.Message)
	}
	return because(apierrors.NewTooManyRequests("Cannot evict pod as it would violate the pod's disruption budget.", 0), message)
}

// budgetNotReady returns the error for a budget whose controller has not caught up with it.
func budgetNotReady(budget string) error {
	err := apierrors.NewTooManyRequests("Cannot evict pod as it would violate the pod's disruption budget.", 10)
	err.ErrStatus.Details.Causes = append(err.ErrStatus.Details.Causes, metav1.StatusCause{
		Type:    policyv1.DisruptionBudgetCause,
		Message: fmt.Sprintf("The disruption budget %s is still being processed by the server.", budget),
	})
	return err
}

// deletePod sets the DisruptionTarget condition of the pod, and deletes it.
func (e *eviction) deletePod(ctx context.Context, options *metav1.DeleteOptions) error {
	if !e.dryRun {
		o, err := e.door.Modify(ctx, podResource(), e.namespace, e.name, false, func(o kind.Object) error {
			p := o.(*corev1.Pod)
			if err := checkPreconditions(p, options.Preconditions); err != nil {
				return err
			}
			setPodCondition(&p.Status, corev1.PodCondition{
				Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: "EvictionByEvictionAPI",
				Message: "Eviction API: evicting",
			})
			return nil
		})
		if err != nil {
			return err
		}
		if options.Preconditions != nil && options.Preconditions.ResourceVersion != nil {
			options = withResourceVersion(options, o.GetResourceVersion())
		}
	}
	_, err := e.door.Remove(ctx, podResource(), e.namespace, e.name, options)
	return err
}

// checkPreconditions checks the preconditions of a deletion.
func checkPreconditions(p *corev1.Pod, pre *metav1.Preconditions) error {
	if pre == nil {
		return nil
	}
	gr := schema.GroupResource{Resource: "Pod"}
	if u := pre.UID; u != nil && *u != "" && *u != p.UID {
		return apierrors.NewConflict(gr, p.Name, fmt.Errorf(
			"the UID in the precondition (%s) does not match the UID in record (%s). The object might have been deleted and then recreated", *u, p.UID))
	}
	if v := pre.ResourceVersion; v != nil && *v != "" && *v != p.ResourceVersion {
		return apierrors.NewConflict(gr, p.Name, fmt.Errorf(
			"the ResourceVersion in the precondition (%s) does not match the ResourceVersion in record (%s). The object might have been modified", *v, p.ResourceVersion))
	}
	return nil
}
