package whysource

import (
	"fmt"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// TestExplanationsAreBounded holds that one explanation at a time is made for a user, and a few for all.
func TestExplanationsAreBounded(t *testing.T) {
	s := &Source{}
	done, err := s.begin("eve")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.begin("eve"); !apierrors.IsTooManyRequests(err) {
		t.Errorf("the second explanation for the same user: %v", err)
	}
	for i := range maxParallel - 1 {
		if _, err := s.begin(fmt.Sprint("user ", i)); err != nil {
			t.Errorf("another user: %v", err)
		}
	}
	if _, err := s.begin("one more"); !apierrors.IsTooManyRequests(err) {
		t.Errorf("one more than there may be: %v", err)
	}
	done()
	if _, err := s.begin("eve"); err != nil {
		t.Errorf("after the first has ended: %v", err)
	}
}
