package scheduling

import (
	"testing"

	schedulingv1 "k8s.io/api/scheduling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

func TestBootstrapClassesCannotBeDeleted(t *testing.T) {
	d := PriorityClasses()
	for _, p := range BootstrapClasses() {
		d.Default(p)
		d.Prepare(p, nil)
		if errs := d.Validate(p, nil); len(errs) > 0 {
			t.Errorf("%s: %v", p.Name, errs)
		}
		if err := d.Deletion.Check(p); !apierrors.IsForbidden(err) {
			t.Errorf("deleting %s: %v", p.Name, err)
		}
	}
	own := &schedulingv1.PriorityClass{}
	own.Name = "mine"
	if err := d.Deletion.Check(own); err != nil {
		t.Error(err)
	}
}
