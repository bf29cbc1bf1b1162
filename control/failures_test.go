package control

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"proa.dev/kinds/lib/gr"
)

// TestMetricsFailing checks that Metrics.Failing returns the keys that keep failing, with their controller, the time of the
// first failure and the latest error.
func TestMetricsFailing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, q := NewMetrics(), newQueue()
		detach := m.attach("job-controller", q)
		a, b := Key{Namespace: "x", Name: "a"}, Key{Name: "b"}
		fail := func(k Key, err error) {
			q.add(k, cause{})
			q.done(k, 0, err, false)
		}
		begin := time.Now()
		fail(a, errors.New("first"))
		fail(b, errors.New("once"))
		check := func(want string) {
			t.Helper()
			got := ""
			for _, f := range m.Failing(30 * time.Second) {
				got += fmt.Sprintf("%s %s %s %v\n", f.Controller, f.Object, f.Since.Sub(begin), f.Err)
			}
			if got != want {
				t.Errorf("failing are\n%s\nwant\n%s", got, want)
			}
		}
		check("") // they have failed for too short a time
		time.Sleep(20 * time.Second)
		q.done(b, 0, nil, false)
		fail(a, errors.New("still"))
		time.Sleep(20 * time.Second)
		check("job-controller x/a 0s still\n")
		fail(a, apierrors.NewForbidden(gr.Pods, "p", errors.New("exceeded quota: q")))
		check("") // an exceeded quota is for the owner of the object to resolve, not for an administrator
		fail(a, apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "p", errors.New(`User "system:serviceaccount:kube-system:x" cannot create resource "pods"`)))
		check("job-controller x/a 0s pods \"p\" is forbidden: User \"system:serviceaccount:kube-system:x\" cannot create resource \"pods\"\n")
		q.done(a, 0, nil, false)
		check("")
		q.stop()
		detach()
	})
}
