package apistatus

import (
	"errors"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// TestStatusOf checks which Status is made of errors that have none.
func TestStatusOf(t *testing.T) {
	for title, c := range map[string]struct {
		err     error
		code    int32
		message string
	}{
		"plain":  {errors.New("a"), 500, "a"},
		"joined": {utilerrors.NewAggregate([]error{errors.New("a"), errors.New("b")}), 500, "[a, b]"},
		"status": {BadRequest("a"), 400, "a"},
	} {
		t.Run(title, func(t *testing.T) {
			if st := Of(c.err); st.Code != c.code || st.Message != c.message {
				t.Errorf("got %d %s", st.Code, st.Message)
			}
		})
	}
}

// TestAggregates checks that an aggregate of errors, which cannot be compared with ==, has a Status.
func TestAggregates(t *testing.T) {
	err := field.ErrorList{field.Required(field.NewPath("a"), ""), field.Required(field.NewPath("b"), "")}.ToAggregate()
	if st := Of(err); st.Code != 500 || st.Message == "" {
		t.Errorf("the answer is %+v", st)
	}
}

func TestIsBusy(t *testing.T) {
	if !IsBusy(Of(TooManyRequests())) {
		t.Error("the refusal of a busy server is not recognized")
	}
	if other := apierrors.NewTooManyRequests("Cannot evict pod as it would violate the pod's disruption budget.", 1); IsBusy(Of(other)) {
		t.Error("a disruption budget counts as a busy server")
	}
}
