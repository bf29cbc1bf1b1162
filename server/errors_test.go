package server

import (
	"errors"
	"testing"

	utilerrors "k8s.io/apimachinery/pkg/util/errors"
)

// TestStatusOf gives errors that are no Status to those who answer.
func TestStatusOf(t *testing.T) {
	for title, c := range map[string]struct {
		err     error
		code    int32
		message string
	}{
		"plain":  {errors.New("a"), 500, "a"},
		"joined": {utilerrors.NewAggregate([]error{errors.New("a"), errors.New("b")}), 500, "[a, b]"},
		"status": {badRequest("a"), 400, "a"},
	} {
		t.Run(title, func(t *testing.T) {
			if st := statusOf(c.err); st.Code != c.code || st.Message != c.message {
				t.Errorf("got %d %s", st.Code, st.Message)
			}
		})
	}
}
