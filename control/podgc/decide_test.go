package podgc

import (
	"cmp"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

var epoch = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

// pods parses Pods: "name phase", and then "evicted", "age=1h", "terminating", or "forced" for a deletion without a grace period.
func pods(texts ...string) (out []*corev1.Pod) {
	for _, text := range texts {
		words := strings.Fields(text)
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: words[0], Generation: 3, CreationTimestamp: metav1.NewTime(epoch)}}
		p.Status.Phase = corev1.PodPhase(words[1])
		for _, w := range words[2:] {
			switch age, aged := strings.CutPrefix(w, "age="); {
			case aged:
				d, _ := time.ParseDuration(age)
				p.CreationTimestamp = metav1.NewTime(epoch.Add(-d))
			case w == "evicted":
				p.Status.Reason = "Evicted"
			case w == "terminating", w == "forced":
				p.DeletionTimestamp, p.DeletionGracePeriodSeconds = new(metav1.NewTime(epoch)), new(int64(30))
				if w == "forced" {
					p.DeletionGracePeriodSeconds = new(int64(0))
				}
			}
		}
		out = append(out, p)
	}
	return out
}

func names(pods []*corev1.Pod) string {
	var out []string
	for _, p := range pods {
		out = append(out, p.Name)
	}
	return strings.Join(out, " ")
}

func TestSurplus(t *testing.T) {
	all := pods("b Succeeded age=2h", "a Succeeded age=2h", "young Failed age=1m", "e Failed evicted", "old Failed age=9h",
		"x Succeeded evicted age=3h")
	for threshold, want := range map[int]string{0: "", 6: "", 7: "", 5: "e", 4: "e old", 3: "e old x", 2: "e old x a", 1: "e old x a b"} {
		if got := names(surplus(all, threshold)); got != want {
			t.Errorf("threshold %d: deletes %q, want %q", threshold, got, want)
		}
	}
}

func TestTerminatingAndOrphanedPods(t *testing.T) {
	all := pods("run Running", "end Failed", "going Running terminating", "hung Failed forced", "half Failed terminating",
		"quick Running forced")
	if got := names(terminating(all)); got != "going half quick" {
		t.Errorf("terminating: %s", got)
	}
	if got := names(orphanedPods(all)); got != "run end going half quick" {
		t.Errorf("orphans: %s", got)
	}
}

// TestKeysOfPod checks that a Pod without a node wakes the controller only if it is to be deleted. Listing all such Pods for
// each new one would take quadratic time.
func TestKeysOfPod(t *testing.T) {
	for text, want := range map[string]string{
		"new Pending": "", "going Pending terminating": "-", "ended Failed": "-",
		"new Pending on=a": "a", "going Running on=a terminating": "a", "ended Failed on=a": "a -",
	} {
		words := strings.Fields(text)
		p := pods(text)[0]
		for _, w := range words {
			if node, ok := strings.CutPrefix(w, "on="); ok {
				p.Spec.NodeName = node
			}
		}
		var got []string
		for k := range keysOfPod(nil, p) {
			got = append(got, cmp.Or(k.Name, "-"))
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%s wakes %q, want %q", text, got, want)
		}
	}
}

func TestOutOfService(t *testing.T) {
	taint := []corev1.Taint{{Key: corev1.TaintNodeOutOfService, Effect: corev1.TaintEffectNoExecute}}
	ready := func(s corev1.ConditionStatus) corev1.NodeStatus {
		return corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: s}}}
	}
	for what, c := range map[string]struct {
		node corev1.Node
		want bool
	}{
		"ready, with the taint":        {corev1.Node{Spec: corev1.NodeSpec{Taints: taint}, Status: ready(corev1.ConditionTrue)}, false},
		"not ready, with the taint":    {corev1.Node{Spec: corev1.NodeSpec{Taints: taint}, Status: ready(corev1.ConditionUnknown)}, true},
		"no condition, with the taint": {corev1.Node{Spec: corev1.NodeSpec{Taints: taint}}, true},
		"not ready, without":           {corev1.Node{Status: ready(corev1.ConditionFalse)}, false},
	} {
		if got := isOutOfService(&c.node); got != c.want {
			t.Errorf("%s: %v", what, got)
		}
	}
}

func TestWithFailedPhase(t *testing.T) {
	if withFailedPhase(pods("a Succeeded")[0], nodeDeletedCondition(), epoch) != nil ||
		withFailedPhase(pods("a Failed")[0], nil, epoch) != nil {
		t.Error("a terminal Pod is changed")
	}
	p := pods("a Running")[0]
	got := withFailedPhase(p, nil, epoch)
	if got.Status.Phase != corev1.PodFailed || got.Status.ObservedGeneration != 3 || len(got.Status.Conditions) != 0 ||
		p.Status.Phase != corev1.PodRunning {
		t.Errorf("without a reason: %+v", got.Status)
	}
	want := corev1.PodCondition{
		Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: "DeletionByPodGC", Message: "PodGC: node no longer exists",
		ObservedGeneration: 3, LastTransitionTime: metav1.NewTime(epoch),
	}
	if got = withFailedPhase(p, nodeDeletedCondition(), epoch); !slices.Equal(got.Status.Conditions, []corev1.PodCondition{want}) {
		t.Errorf("with a reason: %+v", got.Status)
	}
	earlier := metav1.NewTime(epoch.Add(-time.Hour))
	p.Status.Conditions = []corev1.PodCondition{{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: "Other",
		LastTransitionTime: earlier}}
	want.LastTransitionTime = earlier
	if got = withFailedPhase(p, nodeDeletedCondition(), epoch); !slices.Equal(got.Status.Conditions, []corev1.PodCondition{want}) {
		t.Errorf("with another reason before: %+v", got.Status)
	}
}
