package podkind

import (
	"context"
	"errors"
	"iter"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"proa.dev/kinds/kind"
)

// fakeServer is a server with one Pod and some PodDisruptionBudgets.
type fakeServer struct {
	kind.Server
	pod       *corev1.Pod
	budgets   []*policyv1.PodDisruptionBudget
	removed   *metav1.DeleteOptions
	removeErr error // returned by Remove
	writes    int
}

func (d *fakeServer) Get(context.Context, schema.GroupResource, string, string) (kind.Object, error) {
	return d.pod, nil
}

func (d *fakeServer) List(context.Context, schema.GroupResource, string) (iter.Seq[kind.Object], error) {
	return func(yield func(kind.Object) bool) {
		for _, b := range d.budgets {
			if !yield(b) {
				return
			}
		}
	}, nil
}

func (d *fakeServer) Modify(_ context.Context, gr schema.GroupResource, _, _ string, dryRun bool,
	change func(kind.Object) error) (kind.Object, error) {
	if gr == podResource() {
		p := d.pod.DeepCopy()
		if err := change(p); err != nil || dryRun {
			return p, err
		}
		d.pod, p.ResourceVersion = p, p.ResourceVersion+"1"
		d.writes++
		return p, nil
	}
	b := d.budgets[0].DeepCopy()
	if err := change(b); err != nil || dryRun {
		return b, err
	}
	d.budgets[0] = b
	d.writes++
	return b, nil
}

func (d *fakeServer) Remove(_ context.Context, _ schema.GroupResource, _, _ string, options *metav1.DeleteOptions) (kind.Object, error) {
	d.removed = options
	return d.pod, d.removeErr
}

func runningPod() *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "n", UID: "u", ResourceVersion: "5", Labels: map[string]string{"app": "x"}},
		Status: corev1.PodStatus{Phase: corev1.PodRunning,
			Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}},
	}
}

func TestBind(t *testing.T) {
	bind := func(p *corev1.Pod, b *corev1.Binding, dryRun bool) (*fakeServer, error) {
		d := &fakeServer{pod: p}
		_, err := bindPod(t.Context(), d, &kind.Call{Namespace: "n", Name: "p", Body: b, DryRun: dryRun}, p)
		return d, err
	}
	good := func() *corev1.Binding {
		b := &corev1.Binding{Target: corev1.ObjectReference{Kind: "Node", Name: "node"}}
		b.Name, b.Labels, b.Annotations = "p", map[string]string{"zone": "z"}, map[string]string{"a": "b"}
		return b
	}
	pending := runningPod()
	pending.Status = corev1.PodStatus{Phase: corev1.PodPending, NominatedNodeName: "other"}
	d, err := bind(pending, good(), false)
	c := podCondition(&d.pod.Status, corev1.PodScheduled)
	if err != nil || d.pod.Spec.NodeName != "node" || d.pod.Labels["zone"] != "z" || d.pod.Annotations["a"] != "b" ||
		d.pod.Status.NominatedNodeName != "" || c == nil || c.Status != corev1.ConditionTrue {
		t.Fatalf("bound %+v, %v", d.pod, err)
	}
	if d, err := bind(pending, good(), true); err != nil || d.pod.Spec.NodeName != "" {
		t.Errorf("a dry run bound the pod: %v", err)
	}
	for _, c := range []struct {
		title   string
		pod     func(*corev1.Pod)
		binding func(*corev1.Binding)
		want    string
	}{
		{"assigned", func(p *corev1.Pod) { p.Spec.NodeName = "m" }, nil,
			`Operation cannot be fulfilled on pods/binding "p": pod p is already assigned to node "m"`},
		{"deleted", func(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{Time: time.Now()} }, nil,
			`Operation cannot be fulfilled on pods/binding "p": pod p is being deleted, cannot be assigned to a host`},
		{"gated", func(p *corev1.Pod) { p.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "a"}} }, nil,
			`Operation cannot be fulfilled on pods/binding "p": pod p has non-empty .spec.schedulingGates`},
		{"another pod", nil, func(b *corev1.Binding) { b.UID = "v" },
			`Operation cannot be fulfilled on pods "p": StorageError: invalid object, Code: 4, Key: /pods/n/p, ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: UID in precondition: v, UID in object meta: u`},
		{"another name", nil, func(b *corev1.Binding) { b.Name = "q" }, "name in URL does not match name in Binding object"},
		{"no node", nil, func(b *corev1.Binding) { b.Target.Name = "" }, "target.name: Required value"},
		{"no kind of node", nil, func(b *corev1.Binding) { b.Target.Kind = "Pod" }, `target.kind: Unsupported value: "Pod": supported values: "Node", "<empty>"`},
	} {
		p, b := runningPod(), good()
		if c.pod != nil {
			c.pod(p)
		}
		if c.binding != nil {
			c.binding(b)
		}
		if _, err := bind(p, b, false); err == nil || err.Error() != c.want {
			t.Errorf("%s: %v, want %s", c.title, err, c.want)
		}
	}
}

func budget(allowed int32) *policyv1.PodDisruptionBudget {
	return &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Name: "b", Generation: 1},
		Spec:       policyv1.PodDisruptionBudgetSpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "x"}}},
		Status: policyv1.PodDisruptionBudgetStatus{ObservedGeneration: 1, DisruptionsAllowed: allowed, CurrentHealthy: 2,
			DesiredHealthy: 3},
	}
}

func evict(t *testing.T, d *fakeServer, options *metav1.DeleteOptions, dryRun bool) error {
	e := &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Name: "p"}, DeleteOptions: options}
	_, err := evictPod(t.Context(), d, &kind.Call{Namespace: "n", Name: "p", Body: e, DryRun: dryRun}, d.pod)
	return err
}

func TestEvict(t *testing.T) {
	d := &fakeServer{pod: runningPod()}
	if err := evict(t, d, nil, false); err != nil || d.removed == nil || podCondition(&d.pod.Status, corev1.DisruptionTarget) == nil {
		t.Errorf("without a budget: %v", err)
	}
	d = &fakeServer{pod: runningPod(), budgets: []*policyv1.PodDisruptionBudget{budget(1)}}
	if err := evict(t, d, nil, false); err != nil || d.removed == nil {
		t.Errorf("with a budget: %v", err)
	}
	if b := d.budgets[0].Status; b.DisruptionsAllowed != 0 || b.DisruptedPods["p"].Time.IsZero() || len(b.Conditions) != 1 {
		t.Errorf("the budget is %+v", b)
	}
	d = &fakeServer{pod: runningPod(), budgets: []*policyv1.PodDisruptionBudget{budget(1)}}
	if err := evict(t, d, nil, true); err != nil || d.writes != 0 || d.removed == nil || len(d.removed.DryRun) != 1 {
		t.Errorf("a dry run: %v, %d writes, removed with %+v", err, d.writes, d.removed)
	}
	unready := runningPod()
	unready.Status.Conditions = nil
	spared := budget(0)
	spared.Spec.UnhealthyPodEvictionPolicy = new(policyv1.AlwaysAllow)
	d = &fakeServer{pod: unready, budgets: []*policyv1.PodDisruptionBudget{spared}}
	if err := evict(t, d, nil, false); err != nil || *d.removed.Preconditions.ResourceVersion != "51" {
		t.Errorf("a pod that is not ready: %v", err)
	}
	d.removeErr = apierrors.NewConflict(podResource(), "p", errors.New("changed"))
	if err := evict(t, d, nil, false); !apierrors.IsTooManyRequests(err) {
		t.Errorf("a pod that became ready: %v", err)
	}
	pending := runningPod()
	pending.Status.Phase = corev1.PodPending
	d = &fakeServer{pod: pending, budgets: []*policyv1.PodDisruptionBudget{budget(0)}}
	if err := evict(t, d, nil, false); err != nil || *d.removed.Preconditions.ResourceVersion != "51" {
		t.Errorf("a pending pod: %v", err)
	}
	d = &fakeServer{pod: runningPod()}
	if err := evict(t, d, &metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: new(types.UID("other"))}},
		false); !apierrors.IsConflict(err) || d.removed != nil {
		t.Errorf("another pod: %v", err)
	}
}

func TestEvictRefused(t *testing.T) {
	const cannot = "Cannot evict pod as it would violate the pod's disruption budget."
	for _, c := range []struct {
		title          string
		budget         func(*policyv1.PodDisruptionBudget)
		code           int32
		message, cause string
	}{
		{"none allowed", func(*policyv1.PodDisruptionBudget) {}, 429, cannot,
			"The disruption budget b needs 3 healthy pods and has 2 currently"},
		{"not observed", func(b *policyv1.PodDisruptionBudget) { b.Generation = 2 }, 429, cannot,
			"The disruption budget b is still being processed by the server."},
		{"enough, but none allowed", func(b *policyv1.PodDisruptionBudget) { b.Status.CurrentHealthy = 9 }, 429, cannot,
			"The disruption budget b does not allow evicting pods currently"},
		{"with a reason", func(b *policyv1.PodDisruptionBudget) {
			b.Status.CurrentHealthy = 9
			b.Status.Conditions = []metav1.Condition{{Type: policyv1.DisruptionAllowedCondition, Status: metav1.ConditionFalse, Reason: "R",
				Message: "m"}}
		}, 429, cannot, "The disruption budget b does not allow evicting pods currently (R): m"},
		{"failed sync", func(b *policyv1.PodDisruptionBudget) {
			b.Status.Conditions = []metav1.Condition{{Type: policyv1.DisruptionAllowedCondition, Status: metav1.ConditionFalse,
				Reason: policyv1.SyncFailedReason, Message: "m"}}
		}, 429, cannot, "The disruption budget b does not allow evicting pods currently because it failed sync: m"},
		{"negative", func(b *policyv1.PodDisruptionBudget) { b.Status.DisruptionsAllowed = -1 }, 403,
			`poddisruptionbudget.policy "b" is forbidden: pdb disruptions allowed is negative`, "The disruption budget b does not allow evicting pods currently: pdb disruptions allowed is negative"},
	} {
		b := budget(0)
		c.budget(b)
		d := &fakeServer{pod: runningPod(), budgets: []*policyv1.PodDisruptionBudget{b}}
		err, _ := errors.AsType[*apierrors.StatusError](evict(t, d, nil, false))
		if err == nil || err.ErrStatus.Code != c.code || err.ErrStatus.Message != c.message || d.removed != nil {
			t.Errorf("%s: %v", c.title, err)
			continue
		}
		if causes := err.ErrStatus.Details.Causes; len(causes) != 1 || causes[0].Type != policyv1.DisruptionBudgetCause ||
			causes[0].Message != c.cause {
			t.Errorf("%s: causes %+v", c.title, causes)
		}
	}
	d := &fakeServer{pod: runningPod(), budgets: []*policyv1.PodDisruptionBudget{budget(1), budget(1)}}
	if err := evict(t, d, nil, false); err == nil || !strings.HasPrefix(err.Error(), "This pod has more than one PodDisruptionBudget") {
		t.Errorf("two budgets: %v", err)
	}
}
