package flowconfig

import (
	"fmt"
	"os"
	"strings"
	"testing"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestRevise(t *testing.T) {
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
		have := want.DeepCopy()
		have.Generation = generation
		if annotation != "-" {
			have.Annotations = map[string]string{automatic: annotation}
		}
		if spec == "other" {
			have.Spec.MatchingPrecedence = 7
		}
		var got []string
		if next, ok := revise(have, wanted{want, demand == "mandatory"}).(*flowcontrolv1.FlowSchema); ok {
			if next.Spec.MatchingPrecedence != have.Spec.MatchingPrecedence {
				got = append(got, "spec")
			}
			if now := next.Annotations[automatic]; now != have.Annotations[automatic] {
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

// TestExempt is about the one level of which people may change a part.
func TestExempt(t *testing.T) {
	level := func(name string, shares int32) *flowcontrolv1.PriorityLevelConfiguration {
		return &flowcontrolv1.PriorityLevelConfiguration{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec:       flowcontrolv1.PriorityLevelConfigurationSpec{Type: flowcontrolv1.PriorityLevelEnablementExempt, Exempt: &flowcontrolv1.ExemptPriorityLevelConfiguration{NominalConcurrencyShares: &shares}},
		}
	}
	if !same(level("exempt", 5), level("exempt", 0)) {
		t.Error("the shares of exempt are not for people to say")
	}
	if same(level("mine", 5), level("mine", 0)) {
		t.Error("the shares of another level are for people to say")
	}
	empty := level("exempt", 0)
	empty.Spec.Exempt = nil
	if same(empty, level("exempt", 0)) {
		t.Error("an exempt level without its part is right")
	}
	limited := level("exempt", 0)
	limited.Spec.Type = flowcontrolv1.PriorityLevelEnablementLimited
	if same(limited, level("exempt", 0)) {
		t.Error("exempt may be limited")
	}
	replace(limited, level("exempt", 0))
	if limited.Spec.Type != flowcontrolv1.PriorityLevelEnablementExempt {
		t.Error("the spec is not replaced")
	}
}
