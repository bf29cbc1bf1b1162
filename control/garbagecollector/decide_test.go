package garbagecollector

import (
	"fmt"
	"os"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// TestDecide runs the cases of testdata/decide.txt: the states of an object's owners, further facts about the object, and the
// expected decision.
func TestDecide(t *testing.T) {
	text, err := os.ReadFile("testdata/decide.txt")
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "#") || strings.TrimSpace(line) == "" {
			continue
		}
		n++
		input, want, _ := strings.Cut(line, "->")
		o := &corev1.ConfigMap{}
		var states []ownerState
		var f dependentFacts
		f.hasDependents, f.dependentWaits = func() bool { return false }, func() bool { return false }
		for word := range strings.FieldsSeq(input) {
			switch word {
			case "solid", "dangling", "waiting", "unknown":
				states = append(states, map[string]ownerState{"solid": ownerExists, "dangling": ownerAbsent, "waiting": ownerWaits,
					"unknown": ownerUnknown}[word])
				o.OwnerReferences = append(o.OwnerReferences, metav1.OwnerReference{UID: types.UID(fmt.Sprint(len(states)))})
			case "deleting":
				o.DeletionTimestamp = &metav1.Time{}
			case "foreground":
				o.Finalizers = append(o.Finalizers, metav1.FinalizerDeleteDependents)
			case "orphan":
				o.Finalizers = append(o.Finalizers, metav1.FinalizerOrphanDependents)
			case "owner":
				f.hasDependents = func() bool { return true }
			case "loop":
				f.dependentWaits = func() bool { return true }
			default:
				t.Fatalf("%q in %s", word, line)
			}
		}
		v := decide(o, states, f)
		got := "nothing"
		switch {
		case v.unlink != nil:
			got = fmt.Sprint("unlink ", v.unlink)
		case v.remove != "":
			got = "delete " + string(v.remove)
			if v.unblock {
				got = "unblock, " + got
			}
		}
		if got != strings.TrimSpace(want) {
			t.Errorf("%s: %s, want%s", input, got, want)
		}
	}
	if n < 15 {
		t.Errorf("only %d cases", n)
	}
}
