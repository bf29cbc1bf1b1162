package apiregistration

import (
	"fmt"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"proa.dev/kinds/kind/kindtest"
)

func TestKinds(t *testing.T) { kindtest.Run(t, All(), "testdata") }

func TestLocal(t *testing.T) {
	got := Local([]schema.GroupVersion{{Version: "v1"}, {Group: "apps", Version: "v1"}, {Group: "autoscaling", Version: "v2"},
		{Group: "example.com", Version: "v1"}, {Group: "metrics.k8s.io", Version: "v1beta1"}})
	want := []string{"v1. 18000 1 onstart", "v1.apps 17800 15 onstart", "v2.autoscaling 17500 30 onstart",
		"v1beta1.metrics.k8s.io 100 100 onstart"}
	if len(got) != len(want) {
		t.Fatalf("got %d services", len(got))
	}
	for i, s := range got {
		if text := fmt.Sprint(s.Name, " ", s.Spec.GroupPriorityMinimum, " ", s.Spec.VersionPriority, " ",
			s.Labels[AutomanagedLabel]); text != want[i] {
			t.Errorf("got %q, want %q", text, want[i])
		}
		if errs := validateAPIService(s, nil); len(errs) > 0 {
			t.Error(errs)
		}
	}
}
