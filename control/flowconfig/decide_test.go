package flowconfig

import (
	"fmt"
	"os"
	"strings"
	"testing"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestUpdated(t *testing.T) {
	text, err := os.ReadFile("testdata/revise.txt")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		given, result, _ := strings.Cut(line, "->")
		var demand, annotation, spec string
		var generation int64
		if _, err := fmt.Sscan(given, &demand, &annotation, &generation, &spec); err != nil {
			t.Fatal(err)
		}
		want := &flowcontrolv1.FlowSchema{Spec: flowcontrolv1.FlowSchemaSpec{MatchingPrecedence: 100}}
		stored := want.DeepCopy()
		stored.Generation = generation
		if annotation != "-" {
			stored.Annotations = map[string]string{autoUpdate: annotation}
		}
		if spec == "other" {
			stored.Spec.MatchingPrecedence = 7
		}
		var got []string
		if next, ok := updated(stored, wanted{want, demand == "mandatory"}).(*flowcontrolv1.FlowSchema); ok {
			if next.Spec.MatchingPrecedence != stored.Spec.MatchingPrecedence {
				got = append(got, "spec")
			}
			if now := next.Annotations[autoUpdate]; now != stored.Annotations[autoUpdate] {
				got = append(got, "annotation "+now)
			}
		} else {
			got = append(got, "nothing")
		}
		if text := strings.Join(got, ", "); text != strings.TrimSpace(result) {
			t.Errorf("%s: %s", strings.TrimSpace(line), text)
		}
	}
}

// TestSameSpecOfExemptLevel checks the exempt level, of which administrators may change a part.
func TestSameSpecOfExemptLevel(t *testing.T) {
	level := func(name string, shares int32) *flowcontrolv1.PriorityLevelConfiguration {
		return &flowcontrolv1.PriorityLevelConfiguration{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: flowcontrolv1.PriorityLevelConfigurationSpec{Type: flowcontrolv1.PriorityLevelEnablementExempt,
				Exempt: &flowcontrolv1.ExemptPriorityLevelConfiguration{NominalConcurrencyShares: &shares}},
		}
	}
	if !hasSameSpec(level("exempt", 5), level("exempt", 0)) {
		t.Error("changed shares of the exempt level are a difference")
	}
	if hasSameSpec(level("mine", 5), level("mine", 0)) {
		t.Error("changed shares of another level are no difference")
	}
	empty := level("exempt", 0)
	empty.Spec.Exempt = nil
	if hasSameSpec(empty, level("exempt", 0)) {
		t.Error("an exempt level without spec.exempt is no difference")
	}
	limited := level("exempt", 0)
	limited.Spec.Type = flowcontrolv1.PriorityLevelEnablementLimited
	if hasSameSpec(limited, level("exempt", 0)) {
		t.Error("exempt may be limited")
	}
	setSpec(limited, level("exempt", 0))
	if limited.Spec.Type != flowcontrolv1.PriorityLevelEnablementExempt {
		t.Error("the spec is not replaced")
	}
}
