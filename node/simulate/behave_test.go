package simulate

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// FuzzLife checks that a container does not end before it starts, for any annotations and command.
func FuzzLife(f *testing.F) {
	f.Add("", "", "sh -c", "sleep 3m; exit 7")
	f.Add("1", "10s", "", "")
	f.Add("", "", "sleep", "2147483647h")
	f.Fuzz(func(t *testing.T, code, run, command, args string) {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{ExitAnnotation: code, RunAnnotation: run}}}
		for _, p := range []*corev1.Pod{p, {}} {
			l := lifeOf(p, &corev1.Container{Command: []string{command}, Args: []string{args}})
			if l.after < 0 || !l.ends && l != (life{}) {
				t.Errorf("%+v", l)
			}
		}
		matches(command, args)
	})
}
