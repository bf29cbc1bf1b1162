package namespace

import (
	"errors"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

func TestConditionsListRemainingResources(t *testing.T) {
	now := metav1.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	remains := []leftover{
		{resource: schema.GroupResource{Resource: "pods"}, objects: 2, finalizers: map[string]int{"a/b": 1}},
		{resource: schema.GroupResource{Group: "apps", Resource: "deployments"}, objects: 1,
			finalizers: map[string]int{"a/b": 1, "c/d": 1}},
	}
	got := map[corev1.NamespaceConditionType]string{}
	conditions := describeConditions(result{remains: remains, failures: []error{errors.New("boom")}}, nil, now)
	for _, c := range conditions {
		got[c.Type] = string(c.Status) + " " + c.Reason + ": " + c.Message
	}
	for kind, want := range map[corev1.NamespaceConditionType]string{
		corev1.NamespaceDeletionDiscoveryFailure: "False ResourcesDiscovered: All resources successfully discovered",
		corev1.NamespaceDeletionGVParsingFailure: "False ParsedGroupVersions: All legacy kube types successfully parsed",
		corev1.NamespaceDeletionContentFailure:   "True ContentDeletionFailed: Failed to delete all resource types, 1 remaining: boom",
		corev1.NamespaceContentRemaining:         "True SomeResourcesRemain: Some resources are remaining: deployments.apps has 1 resource instances, pods. has 2 resource instances",
		corev1.NamespaceFinalizersRemaining:      "True SomeFinalizersRemain: Some content in the namespace has finalizers remaining: a/b in 2 resource instances, c/d in 1 resource instances",
	} {
		if got[kind] != want {
			t.Errorf("%s: %q, want %q", kind, got[kind], want)
		}
	}
	later := metav1.NewTime(now.Add(time.Hour))
	again := describeConditions(result{remains: remains, failures: []error{errors.New("boom")}}, conditions, later)
	if haveChanged(again, conditions) || again[0].LastTransitionTime != now {
		t.Error("the same state is a change, or has another transition time")
	}
	empty := describeConditions(result{}, conditions, later)
	if !haveChanged(empty, conditions) {
		t.Error("an emptied namespace is no change")
	}
	for _, c := range empty {
		if c.Status != corev1.ConditionFalse || (strings.HasPrefix(string(c.Type), "NamespaceContent") && c.LastTransitionTime != later) {
			t.Errorf("condition %+v of an empty namespace", c)
		}
	}
}

func TestDifferOnlyInNumbers(t *testing.T) {
	pods := func(n, held int) []leftover {
		return []leftover{{resource: schema.GroupResource{Resource: "pods"}, objects: n, finalizers: map[string]int{"a/b": held}}}
	}
	now := metav1.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	before := describeConditions(result{remains: pods(10, 3)}, nil, now)
	for _, c := range []struct {
		title string
		now   []leftover
		want  bool
	}{
		{"fewer", pods(9, 3), true},
		{"far fewer", pods(1, 1), true},
		{"another resource", append(pods(10, 3), leftover{resource: schema.GroupResource{Resource: "secrets"}, objects: 1}), false},
		{"none", nil, false},
	} {
		if got := differOnlyInNumbers(describeConditions(result{remains: c.now}, before, now), before); got != c.want {
			t.Errorf("%s: only numbers: %v", c.title, got)
		}
	}
}

func TestLargeNamespacesAreReconciledLessOften(t *testing.T) {
	e := &emptier{progress: map[string]progress{}}
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	if d := e.untilNextReconcile("new", now); d != 0 {
		t.Errorf("a new one waits %v", d)
	}
	for remaining, want := range map[int]time.Duration{0: 0, 50: time.Millisecond, 10_000: 200 * time.Millisecond, 1_000_000: time.Second} {
		e.remember("ns", func(s *progress) { s.reconciled, s.left = now, remaining })
		if d := e.untilNextReconcile("ns", now); d != want {
			t.Errorf("with %d left: %v, want %v", remaining, d, want)
		}
		if d := e.untilNextReconcile("ns", now.Add(want)); d != 0 {
			t.Errorf("with %d left, after %v: %v", remaining, want, d)
		}
		if d := e.untilNextReconcile("ns", now.Add(-time.Hour)); d != 0 {
			t.Errorf("with %d left, and the clock set back: %v", remaining, d)
		}
	}
	e.forget("ns")
	if d := e.untilNextReconcile("ns", now); d != 0 || len(e.progress) != 0 {
		t.Errorf("after forget it waits %v", d)
	}
}

// TestUnavailableAPIServerIsADiscoveryFailure checks that an API server that does not answer is reported with the message of
// discovery clients.
func TestUnavailableAPIServerIsADiscoveryFailure(t *testing.T) {
	unknown := []schema.GroupVersion{{Group: "wardle.example.com", Version: "v1"}, {Group: "a.example.com", Version: "v2"}}
	for _, c := range describeConditions(result{unknown: unknown}, nil, metav1.Now()) {
		if c.Type != corev1.NamespaceDeletionDiscoveryFailure {
			if c.Status != corev1.ConditionFalse {
				t.Errorf("%+v", c)
			}
			continue
		}
		const want = "Discovery failed for some groups, 2 failing: unable to retrieve the complete list of server APIs: " +
			"a.example.com/v2: stale GroupVersion discovery: a.example.com/v2, wardle.example.com/v1: stale GroupVersion discovery: wardle.example.com/v1"
		if c.Status != corev1.ConditionTrue || c.Reason != "DiscoveryFailed" || c.Message != want {
			t.Errorf("%+v", c)
		}
	}
}
