package disruption

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"proa.dev/internal/textcase"
)

var epoch = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

// decideCase is the input of a case. A Pod is written as its name, followed by "ready", "deleting" or "of=OWNER".
type decideCase struct {
	Spec       policyv1.PodDisruptionBudgetSpec
	Disrupted  map[string]string // how long ago
	Pods       []string
	Owners     map[string]int32 // replicas by owner; with -1 the lookup of the owner fails
	Conditions []metav1.Condition
	Generation int64
}

// TestDecide runs the cases of testdata/decide.txt.
func TestDecide(t *testing.T) {
	textcase.Decide(t, "testdata/decide.txt", "--", func(t *testing.T, in string) string {
		var m decideCase
		if err := yaml.UnmarshalStrict([]byte(in), &m); err != nil {
			t.Fatal(err)
		}
		return m.decide(t)
	})
}

func (m *decideCase) decide(t *testing.T) string {
	b := &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Generation: m.Generation}, Spec: m.Spec}
	b.Status = policyv1.PodDisruptionBudgetStatus{DisruptionsAllowed: 7, Conditions: m.Conditions, DisruptedPods: map[string]metav1.Time{}}
	for name, ago := range m.Disrupted {
		d, err := time.ParseDuration(ago)
		if err != nil {
			t.Fatal(err)
		}
		b.Status.DisruptedPods[name] = metav1.NewTime(epoch.Add(-d))
	}
	var pods []*corev1.Pod
	for _, text := range m.Pods {
		pods = append(pods, parsePod(strings.Fields(text)))
	}
	find := func(ref *metav1.OwnerReference) (*owner, error) {
		n, found := m.Owners[ref.Name]
		switch {
		case n < 0:
			return nil, errors.New("the owner does not answer")
		case !found:
			return nil, nil
		}
		return &owner{ref.UID, n}, nil
	}
	f, err := decide(b, pods, find, epoch)
	var out strings.Builder
	if err != nil {
		fmt.Fprintf(&out, "error: %v\n", err)
		f.status = failedStatus(b, err, epoch)
	}
	s := &f.status
	fmt.Fprintf(&out, "allowed %d, healthy %d of desired %d, expected %d, generation %d\n", s.DisruptionsAllowed, s.CurrentHealthy,
		s.DesiredHealthy, s.ExpectedPods, s.ObservedGeneration)
	for _, name := range slices.Sorted(maps.Keys(s.DisruptedPods)) {
		fmt.Fprintf(&out, "disrupted %s\n", name)
	}
	for _, p := range f.late {
		fmt.Fprintf(&out, "late %s\n", p.Name)
	}
	if f.unmanaged {
		fmt.Fprintln(&out, "unmanaged")
	}
	if f.again > 0 {
		fmt.Fprintf(&out, "again %s\n", f.again)
	}
	for _, c := range s.Conditions {
		fmt.Fprintln(&out, strings.TrimSpace(fmt.Sprintf("%s %s %s %s %s", c.Type, c.Status, c.Reason,
			c.LastTransitionTime.UTC().Format(time.TimeOnly), c.Message)))
	}
	return out.String()
}

func parsePod(words []string) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: words[0]}}
	for _, w := range words[1:] {
		switch of, owned := strings.CutPrefix(w, "of="); {
		case owned:
			p.OwnerReferences = []metav1.OwnerReference{{Name: of, UID: types.UID(of), Controller: new(true)}}
		case w == "ready":
			p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
		case w == "deleting":
			p.DeletionTimestamp = new(metav1.NewTime(epoch))
		}
	}
	return p
}

func TestResetDisruptionTarget(t *testing.T) {
	pod := func(change func(*corev1.Pod, *corev1.PodCondition)) *corev1.Pod {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Generation: 4},
			Status: corev1.PodStatus{Phase: corev1.PodRunning, Conditions: []corev1.PodCondition{
				{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: "EvictionByEvictionAPI", Message: "m",
					LastTransitionTime: metav1.NewTime(epoch)},
			}}}
		change(p, &p.Status.Conditions[0])
		return p
	}
	for what, change := range map[string]func(*corev1.Pod, *corev1.PodCondition){
		"being deleted":     func(p *corev1.Pod, _ *corev1.PodCondition) { p.DeletionTimestamp = new(metav1.NewTime(epoch)) },
		"by a node":         func(_ *corev1.Pod, c *corev1.PodCondition) { c.Reason = corev1.PodReasonTerminationByKubelet },
		"taken back":        func(_ *corev1.Pod, c *corev1.PodCondition) { c.Status = corev1.ConditionFalse },
		"something else":    func(_ *corev1.Pod, c *corev1.PodCondition) { c.Type = corev1.PodReady },
		"of one that ended": func(p *corev1.Pod, _ *corev1.PodCondition) { p.Status.Phase = corev1.PodFailed },
	} {
		if next, wait := resetDisruptionTarget(pod(change), epoch.Add(time.Hour)); next != nil || wait != 0 {
			t.Errorf("%s: %v, wait %v", what, next, wait)
		}
	}
	p := pod(func(*corev1.Pod, *corev1.PodCondition) {})
	if next, wait := resetDisruptionTarget(p, epoch.Add(30*time.Second)); next != nil || wait != 90*time.Second {
		t.Errorf("too early: %v, wait %v", next, wait)
	}
	next, wait := resetDisruptionTarget(p, epoch.Add(2*time.Minute))
	want := corev1.PodCondition{Type: corev1.DisruptionTarget, Status: corev1.ConditionFalse, ObservedGeneration: 4,
		LastTransitionTime: metav1.NewTime(epoch.Add(2 * time.Minute))}
	if next == nil || wait != 0 || next.Status.Conditions[0] != want || p.Status.Conditions[0].Status != corev1.ConditionTrue {
		t.Errorf("in time: %+v, wait %v", next, wait)
	}
}
