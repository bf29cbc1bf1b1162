package control

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// failure records how often a key has failed in a row, since when, and the last error.
type failure struct {
	times int
	since time.Time
	err   error
	// exceeded counts the last failures that are reconciliations out of their bounds; from and until when the key is set aside for that.
	exceeded    int
	from, until time.Time
}

// isSetAside reports whether a key is reconciled at long intervals only.
func (f *failure) isSetAside() bool { return !f.until.IsZero() }

// Failure is a key that a controller keeps failing to reconcile.
type Failure struct {
	Controller string
	// Object is the namespace and the name of the key.
	Object string
	Since  time.Time
	Err    error
}

// Failing returns the keys that have failed for at least the given time, the oldest first. Rejections that the owner of an
// object has to resolve, such as an exceeded quota, are left out: there the controller works, and records Events for the
// owner.
func (m *Metrics) Failing(atLeast time.Duration) (out []Failure) {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now()
	for q, name := range m.queues {
		for k, since := range q.running() {
			if now.Sub(since) >= maxReconcile+endsWithin {
				out = append(out, Failure{name, strings.TrimPrefix(k.Namespace+"/"+k.Name, "/"), since, errNotEnding})
			}
		}
		for k, f := range q.failing() {
			if now.Sub(f.since) >= atLeast && !refusedForObject(f.err) {
				if f.isSetAside() {
					f.err = fmt.Errorf("set aside until %s: %w", f.until.Format(time.TimeOnly), f.err)
				}
				out = append(out, Failure{name, strings.TrimPrefix(k.Namespace+"/"+k.Name, "/"), f.since, f.err})
			}
		}
	}
	slices.SortFunc(out, func(a, b Failure) int {
		return cmp.Or(a.Since.Compare(b.Since), strings.Compare(a.Controller, b.Controller), strings.Compare(a.Object, b.Object))
	})
	return out
}

// failing returns a copy of the failures.
func (q *queue) failing() map[Key]failure {
	q.mu.Lock()
	defer q.mu.Unlock()
	out := make(map[Key]failure, len(q.fails))
	for k, f := range q.fails {
		out[k] = f
	}
	return out
}

// running returns the keys that are being reconciled, and since when.
func (q *queue) running() map[Key]time.Time {
	q.mu.Lock()
	defer q.mu.Unlock()
	out := map[Key]time.Time{}
	for k, s := range q.state {
		if s == running || s == rerun {
			out[k] = q.since[k]
		}
	}
	return out
}

// refusedForObject reports whether the API server rejected a write because of what the object asks for, and not because the
// controller lacks a permission.
func refusedForObject(err error) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return false
	}
	switch status.Status().Reason {
	case metav1.StatusReasonInvalid, metav1.StatusReasonAlreadyExists:
		return true
	case metav1.StatusReasonForbidden: // by admission, unless it is the message of the authorizer: user "x" cannot ...
		return !strings.Contains(status.Status().Message, "\" cannot ")
	}
	return false
}
