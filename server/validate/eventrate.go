package validate

import (
	"container/list"
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/yaml"

	"proa.dev/kinds/kind"
)

// eventLimit limits the rate of Events with the same key. It is a token bucket for each key, of size burst, refilled at
// qps.
type eventLimit struct {
	Type      string `json:"type"`
	QPS       int32  `json:"qps"`
	Burst     int32  `json:"burst"`
	CacheSize int32  `json:"cacheSize"`
}

// defaultBuckets is the number of buckets of a limit without a cacheSize; the least recently used are evicted beyond
// that.
const defaultBuckets = 4096

// eventKeys returns, for each type of limit, the function that computes the key of an Event.
func eventKeys() map[string]func(*kind.Admission, *corev1.Event) string {
	return map[string]func(*kind.Admission, *corev1.Event) string{
		"Server":    func(*kind.Admission, *corev1.Event) string { return "" },
		"Namespace": func(a *kind.Admission, _ *corev1.Event) string { return a.Namespace },
		"User":      func(a *kind.Admission, _ *corev1.Event) string { return a.User.GetName() },
		"SourceAndObject": func(_ *kind.Admission, e *corev1.Event) string {
			o := &e.InvolvedObject
			return strings.Join([]string{e.Source.Component, e.Source.Host, o.Kind, o.Namespace, o.Name, string(o.UID), o.APIVersion}, "")
		},
	}
}

// readEventLimits reads the configuration of EventRateLimit. Without one there are no limits.
func readEventLimits(text []byte) ([]eventLimit, error) {
	if len(text) == 0 {
		return nil, nil
	}
	var c struct {
		metav1.TypeMeta `json:",inline"`
		Limits          []eventLimit `json:"limits"`
	}
	if err := yaml.UnmarshalStrict(text, &c); err != nil {
		return nil, err
	}
	if c.APIVersion != "eventratelimit.admission.k8s.io/v1alpha1" || c.Kind != "Configuration" {
		return nil, fmt.Errorf("%s %s is not a Configuration of eventratelimit.admission.k8s.io/v1alpha1", c.APIVersion, c.Kind)
	}
	at, errs := field.NewPath("limits"), field.ErrorList{}
	if len(c.Limits) == 0 {
		errs = append(errs, field.Invalid(at, c.Limits, "must not be empty"))
	}
	for i, l := range c.Limits {
		if eventKeys()[l.Type] == nil {
			errs = append(errs, field.NotSupported(at.Index(i).Child("type"), l.Type,
				[]string{"Namespace", "Server", "SourceAndObject", "User"}))
		}
		if l.Burst <= 0 {
			errs = append(errs, field.Invalid(at.Index(i).Child("burst"), l.Burst, "must be positive"))
		}
		if l.QPS <= 0 {
			errs = append(errs, field.Invalid(at.Index(i).Child("qps"), l.QPS, "must be positive"))
		}
		if l.CacheSize < 0 && l.Type != "Server" {
			errs = append(errs, field.Invalid(at.Index(i).Child("cacheSize"), l.CacheSize, "must not be negative"))
		}
	}
	return c.Limits, errs.ToAggregate()
}

// eventRate rejects Events that exceed a limit.
func eventRate(limits []eventLimit) func(context.Context, *kind.Admission) error {
	var all []*buckets
	for _, l := range limits {
		if l.CacheSize == 0 || l.Type == "Server" {
			l.CacheSize = defaultBuckets
		}
		all = append(all, &buckets{eventLimit: l, key: eventKeys()[l.Type], at: map[string]*list.Element{}})
	}
	return func(_ context.Context, a *kind.Admission) error {
		e, ok := a.Object.(*corev1.Event)
		if !ok || a.DryRun {
			return nil
		}
		var errs []error
		for _, b := range all {
			if key := b.key(a, e); !b.take(key, time.Now()) {
				errs = append(errs, fmt.Errorf("limit reached on type %v for key %v", b.Type, key))
			}
		}
		if err := utilerrors.NewAggregate(errs); err != nil {
			return apierrors.NewTooManyRequestsError(err.Error())
		}
		return nil
	}
}

// buckets holds the token buckets of one limit.
type buckets struct {
	eventLimit
	key func(*kind.Admission, *corev1.Event) string

	mu   sync.Mutex // guards what follows
	used list.List  // of *bucket, the most recently used first
	at   map[string]*list.Element
}

type bucket struct {
	key  string
	left float64
	when time.Time // the time of left
}

// take takes a token out of the bucket of a key, and reports whether there was one.
func (b *buckets) take(key string, now time.Time) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	at, known := b.at[key]
	if !known {
		at = b.used.PushFront(&bucket{key: key, left: float64(b.Burst), when: now})
		b.at[key] = at
		if b.used.Len() > int(b.CacheSize) {
			delete(b.at, b.used.Remove(b.used.Back()).(*bucket).key)
		}
	}
	b.used.MoveToFront(at)
	is := at.Value.(*bucket)
	is.left = min(float64(b.Burst), is.left+now.Sub(is.when).Seconds()*float64(b.QPS))
	is.when = now
	if is.left < 1 {
		return false
	}
	is.left--
	return true
}
