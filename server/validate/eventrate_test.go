package validate

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apiserver/pkg/authentication/user"

	"proa.dev/kinds/kind"
)

// TestEventRate checks how many Events of namespaces and users are admitted.
func TestEventRate(t *testing.T) {
	limits, err := readEventLimits([]byte(`
apiVersion: eventratelimit.admission.k8s.io/v1alpha1
kind: Configuration
limits:
- {type: Namespace, qps: 10, burst: 5, cacheSize: 2}
- {type: User, qps: 100, burst: 8}
`))
	if err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		admit := eventRate(limits)
		through := func(namespace, name string, n int) (out int) {
			for range n {
				a := &kind.Admission{Verb: "create", Namespace: namespace, User: &user.DefaultInfo{Name: name}, Object: &corev1.Event{}}
				if err := admit(t.Context(), a); err == nil {
					out++
				}
			}
			return out
		}
		for i, c := range []struct {
			namespace, user string
			wait            time.Duration
			of, want        int
		}{
			{"a", "u", 0, 20, 5},                      // the burst of the namespace
			{"a", "v", 0, 3, 0},                       // for any user
			{"b", "w", 0, 5, 5},                       // another namespace has a limit of its own
			{"a", "w", 250 * time.Millisecond, 10, 2}, // the bucket fills at ten Events a second
			{"a", "w", 10 * time.Second, 20, 5},       // up to the burst
			{"c", "x", 0, 5, 5},                       // a third namespace, so that the bucket of b is evicted
			{"b", "x", 0, 5, 3},                       // a new bucket of b is full; but the user has three left
			{"d", "w", time.Hour, 20, 5},
		} {
			time.Sleep(c.wait)
			if got := through(c.namespace, c.user, c.of); got != c.want {
				t.Errorf("%d: %d of %d got through, want %d", i, got, c.of, c.want)
			}
		}
	})
}

// TestEventLimits checks invalid configurations.
func TestEventLimits(t *testing.T) {
	head := "apiVersion: eventratelimit.admission.k8s.io/v1alpha1\nkind: Configuration\n"
	for text, want := range map[string]string{
		"kind: Configuration": " Configuration is not a Configuration of eventratelimit.admission.k8s.io/v1alpha1",
		head:                  "limits: Invalid value: null: must not be empty",
		head + "limits: [{type: Sever, qps: 0, burst: -1, cacheSize: -1}]": `[limits[0].type: Unsupported value: "Sever": supported values: "Namespace", "Server", "SourceAndObject", "User", ` +
			`limits[0].burst: Invalid value: -1: must be positive, limits[0].qps: Invalid value: 0: must be positive, limits[0].cacheSize: Invalid value: -1: must not be negative]`,
		head + "limts: []": `error unmarshaling JSON: while decoding JSON: json: unknown field "limts"`,
	} {
		if _, err := readEventLimits([]byte(text)); fmt.Sprint(err) != want {
			t.Errorf("%s: got %v, want %s", text, err, want)
		}
	}
}
