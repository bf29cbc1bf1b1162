package volumeattach

import (
	"os"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestDecide runs the cases of testdata/decide.txt.
func TestDecide(t *testing.T) {
	text, err := os.ReadFile("testdata/decide.txt")
	if err != nil {
		t.Fatal(err)
	}
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	n := 0
	for line := range strings.Lines(string(text)) {
		input, want, found := strings.Cut(line, " -> ")
		if strings.HasPrefix(line, "#") || !found {
			continue
		}
		n++
		s := parseState(t, strings.Fields(input), now)
		if got := formatPlan(decide(s, now)); got != strings.TrimSpace(want) {
			t.Errorf("%s\ngot:  %s\nwant: %s", input, got, want)
		}
	}
	if n < 30 {
		t.Errorf("only %d cases", n)
	}
}

func uniqueNameOf(v string) corev1.UniqueVolumeName { return uniqueName("d", v) }

func parseState(t *testing.T, words []string, now time.Time) nodeState {
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "a", Annotations: map[string]string{managedAnnotation: "true"}},
		Status:     corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}},
	}
	s := nodeState{name: "a", node: node, attachments: map[corev1.UniqueVolumeName]*storagev1.VolumeAttachment{},
		unusedSince: map[corev1.UniqueVolumeName]time.Time{}}
	deleted := false
	for i := 0; i < len(words); i++ {
		next := func() string { i++; return words[i] }
		switch words[i] {
		case "wants":
			v, other, _ := strings.Cut(next(), "@")
			name := strings.TrimSuffix(v, "+")
			w := wantedVolume{name: uniqueNameOf(name), volume: name, driver: "d", handle: name, shared: name != v,
				pods: []*corev1.Pod{pod("default/p")}}
			if other != "" {
				w.otherNodes = []string{other}
			}
			s.wanted = append(s.wanted, w)
		case "user":
			w := &s.wanted[len(s.wanted)-1]
			w.otherPods = append(w.otherPods, pod(next()))
		case "has":
			v := next()
			name := strings.TrimRight(v, "!?-")
			a := &storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: name}}
			switch v[len(name):] {
			case "!":
				a.Status.Attached = true
			case "?":
				a.Status.AttachError = &storagev1.VolumeError{Message: "broken"}
			case "-":
				a.DeletionTimestamp = new(metav1.NewTime(now))
			}
			s.attachments[uniqueNameOf(name)] = a
		case "reported":
			node.Status.VolumesAttached = append(node.Status.VolumesAttached, corev1.AttachedVolume{Name: uniqueNameOf(next())})
		case "mounted":
			s.inUse = append(s.inUse, uniqueNameOf(next()))
		case "idle":
			v := next()
			d, err := time.ParseDuration(next())
			if err != nil {
				t.Fatal(err)
			}
			s.unusedSince[uniqueNameOf(v)] = now.Add(-d)
		case "notready":
			node.Status.Conditions[0].Status = corev1.ConditionUnknown
		case "taint":
			node.Spec.Taints = []corev1.Taint{{Key: corev1.TaintNodeOutOfService}}
		case "unmanaged":
			node.Annotations = nil
		case "deleted":
			deleted = true
		case "mountsunknown":
			s.inUseUnknown = true
		case "noforce":
			s.noForcedDetach = true
		default:
			t.Fatalf("unknown word %s", words[i])
		}
	}
	if deleted {
		s.node = nil
	}
	return s
}

func pod(name string) *corev1.Pod {
	namespace, name, _ := strings.Cut(name, "/")
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
}

func formatPlan(p plan) string {
	var out []string
	short := func(n corev1.UniqueVolumeName) string { return strings.TrimPrefix(string(n), volumeNamePrefix+"d^") }
	if p.report != nil {
		text := "report"
		for _, v := range p.report {
			text += " " + short(v.Name)
		}
		if len(p.report) == 0 {
			text += " none"
		}
		out = append(out, text)
	}
	for _, v := range p.checkUnmounted {
		out = append(out, "checkunmounted "+short(v))
	}
	for _, a := range p.detach {
		out = append(out, "detach "+a.Name)
	}
	for _, a := range p.attach {
		out = append(out, "attach "+*a.Spec.Source.PersistentVolumeName)
	}
	for _, s := range p.events {
		out = append(out, strings.TrimSpace("event "+s.reason+" "+s.text))
	}
	if p.again > 0 {
		out = append(out, "again "+p.again.String())
	}
	if len(out) == 0 {
		return "nothing"
	}
	return strings.Join(out, "; ")
}
