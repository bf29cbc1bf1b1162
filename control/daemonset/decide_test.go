package daemonset

import (
	"fmt"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"proa.dev/internal/textcase"
)

var noon = time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)

// TestDecide runs cases: a name, the state of a set, "=>", and the plan.
func TestDecide(t *testing.T) {
	for _, file := range []string{"testdata/manage.txt", "testdata/roll.txt"} {
		textcase.Decide(t, file, "=>", func(t *testing.T, sees string) string { return decide(parse(t, sees)).String() })
	}
}

// parse reads the state of a set:
//
//	ds [surge=N|N%] [max=N|N%] [ondelete] [minready=N] [node=NAME] [selector=KEY=VALUE] [tolerate=KEY:EFFECT] [hostnetwork] [generation=N]
//	node NAME [label=KEY=VALUE] [taint=KEY:EFFECT]...
//	pod NAME NODE HASH ready|ready=AGE|running|pending|failed|succeeded [deleting] [unbound] [age=AGE] [generation=N]
//	held NODE DURATION
//
// The set is at revision b.
func parse(t *testing.T, text string) *state {
	t.Helper()
	held := map[string]time.Duration{}
	s := &state{now: noon, hash: "b", removalDelay: func(node string) time.Duration { return held[node] }}
	for line := range strings.Lines(text) {
		switch f := strings.Fields(line); f[0] {
		case "ds":
			s.ds = parseSet(t, f[1:])
		case "node":
			s.nodes = append(s.nodes, parseNode(t, f[1:]))
		case "pod":
			s.pods = append(s.pods, parsePod(t, f[1:]))
		case "held":
			held[f[1]] = age(t, f[2])
		default:
			t.Fatalf("unknown line %q", line)
		}
	}
	return s
}

func age(t *testing.T, text string) time.Duration {
	t.Helper()
	d, err := time.ParseDuration(text)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func parseSet(t *testing.T, words []string) *appsv1.DaemonSet {
	t.Helper()
	rolling := &appsv1.RollingUpdateDaemonSet{MaxUnavailable: new(intstr.FromInt32(1)), MaxSurge: new(intstr.FromInt32(0))}
	ds := &appsv1.DaemonSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "d", UID: "u", Generation: 3},
		Spec: appsv1.DaemonSetSpec{
			UpdateStrategy: appsv1.DaemonSetUpdateStrategy{Type: appsv1.RollingUpdateDaemonSetStrategyType, RollingUpdate: rolling},
		},
	}
	spec := &ds.Spec.Template.Spec
	for _, w := range words {
		key, value, _ := strings.Cut(w, "=")
		switch key {
		case "surge":
			rolling.MaxSurge = new(intstr.Parse(value))
		case "max":
			rolling.MaxUnavailable = new(intstr.Parse(value))
		case "ondelete":
			ds.Spec.UpdateStrategy = appsv1.DaemonSetUpdateStrategy{Type: appsv1.OnDeleteDaemonSetStrategyType}
		case "minready":
			ds.Spec.MinReadySeconds = int32(age(t, value+"s") / time.Second)
		case "node":
			spec.NodeName = value
		case "selector":
			k, v, _ := strings.Cut(value, "=")
			spec.NodeSelector = map[string]string{k: v}
		case "tolerate":
			k, effect, _ := strings.Cut(value, ":")
			spec.Tolerations = append(spec.Tolerations,
				corev1.Toleration{Key: k, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffect(effect)})
		case "hostnetwork":
			spec.HostNetwork = true
		case "generation":
			ds.Annotations = map[string]string{appsv1.DeprecatedTemplateGeneration: value}
		default:
			t.Fatalf("ds: unknown word %q", w)
		}
	}
	return ds
}

func parseNode(t *testing.T, words []string) *corev1.Node {
	t.Helper()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: words[0], Labels: map[string]string{}}}
	for _, w := range words[1:] {
		key, value, _ := strings.Cut(w, "=")
		switch key {
		case "label":
			k, v, _ := strings.Cut(value, "=")
			node.Labels[k] = v
		case "taint":
			k, effect, _ := strings.Cut(value, ":")
			node.Spec.Taints = append(node.Spec.Taints, corev1.Taint{Key: k, Effect: corev1.TaintEffect(effect)})
		default:
			t.Fatalf("node: unknown word %q", w)
		}
	}
	return node
}

func parsePod(t *testing.T, words []string) *corev1.Pod {
	t.Helper()
	pod := newPod(&appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "d"}}, words[2], words[1])
	pod.Name, pod.UID, pod.Spec.NodeName, pod.CreationTimestamp = words[0], types.UID(words[0]), words[1],
		metav1.NewTime(noon.Add(-time.Hour))
	for _, w := range words[3:] {
		key, value, _ := strings.Cut(w, "=")
		switch key {
		case "ready":
			since := time.Hour
			if value != "" {
				since = age(t, value)
			}
			pod.Status.Phase = corev1.PodRunning
			pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue,
				LastTransitionTime: metav1.NewTime(noon.Add(-since))}}
		case "running":
			pod.Status.Phase = corev1.PodRunning
		case "pending":
			pod.Status.Phase = corev1.PodPending
		case "failed":
			pod.Status.Phase = corev1.PodFailed
		case "succeeded":
			pod.Status.Phase = corev1.PodSucceeded
		case "deleting":
			pod.DeletionTimestamp = new(metav1.NewTime(noon))
		case "unbound":
			pod.Spec.NodeName = ""
		case "age":
			pod.CreationTimestamp = metav1.NewTime(noon.Add(-age(t, value)))
		case "generation":
			pod.Labels[generationLabel] = value
		default:
			t.Fatalf("pod: unknown word %q", w)
		}
	}
	return pod
}

func (p plan) String() string {
	var b strings.Builder
	for _, n := range p.events {
		fmt.Fprintf(&b, "%s %s: %s\n", n.kind, n.reason, n.message)
	}
	for _, node := range p.create {
		fmt.Fprintf(&b, "create on %s\n", node)
	}
	for _, pod := range p.remove {
		fmt.Fprintf(&b, "remove %s\n", pod.Name)
	}
	for _, node := range p.failed {
		fmt.Fprintf(&b, "failed on %s\n", node)
	}
	if p.again > 0 {
		fmt.Fprintf(&b, "again in %s\n", p.again)
	}
	s := p.status
	fmt.Fprintf(&b, "status desired=%d current=%d misscheduled=%d ready=%d updated=%d available=%d unavailable=%d\n",
		s.DesiredNumberScheduled, s.CurrentNumberScheduled, s.NumberMisscheduled, s.NumberReady, s.UpdatedNumberScheduled,
		s.NumberAvailable, s.NumberUnavailable)
	return b.String()
}

// TestCreatesAreBounded checks that one reconcile creates a bounded number of Pods.
func TestCreatesAreBounded(t *testing.T) {
	s := parse(t, "ds")
	for i := range 300 {
		s.nodes = append(s.nodes, parseNode(t, []string{fmt.Sprintf("n%03d", i)}))
	}
	if p := decide(s); len(p.create) != 250 || p.status.DesiredNumberScheduled != 300 {
		t.Errorf("%d to create of %d", len(p.create), p.status.DesiredNumberScheduled)
	}
}

func TestBackoff(t *testing.T) {
	b, now := newBackoff(), noon
	for i, want := range []time.Duration{time.Second, 2 * time.Second, 4 * time.Second} {
		if left := b.left("k", now); left != 0 {
			t.Fatalf("round %d: %s left", i, left)
		}
		b.next("k", now)
		if left := b.left("k", now); left != want {
			t.Errorf("round %d: %s left, want %s", i, left, want)
		}
		now = now.Add(want)
	}
	for range 12 {
		b.next("k", now)
	}
	if left := b.left("k", now); left != lastDelay {
		t.Errorf("%s left, want no more than %s", left, lastDelay)
	}
	now = now.Add(2*lastDelay + 1)
	b.next("other", now)
	if len(b.delay) != 1 {
		t.Errorf("an old delay is not forgotten: %v", b.delay)
	}
	b.next("k", now)
	if left := b.left("k", now); left != firstDelay {
		t.Errorf("%s left, want %s", left, firstDelay)
	}
	a := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{UID: "u"}}
	changed := a.DeepCopy()
	changed.Status.ObservedGeneration++
	if backoffKey(a, "n") == backoffKey(changed, "n") || backoffKey(a, "n") == backoffKey(a, "m") {
		t.Error("keys that should differ are equal")
	}
}
