package podstate

import (
	"encoding/json"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"

	"proa.dev/node/fact"
)

// TestStoredStatusIsStable checks that a stored status equals the status computed from the same facts; otherwise every step of
// a worker would write.
func TestStoredStatusIsStable(t *testing.T) {
	start := time.Unix(1000, 123456789)
	p := &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "runs"}, {Name: "ended"}}}}
	f := &fact.Pod{
		Sandboxes: []fact.Sandbox{{ID: "s", Ready: true, Created: start}},
		Containers: []fact.Container{
			{ID: "1", Name: "runs", SandboxID: "s", State: fact.Running, Created: start, Started: start.Add(time.Millisecond)},
			{ID: "2", Name: "ended", SandboxID: "s", State: fact.Exited, Created: start, Started: start,
				Finished: start.Add(700 * time.Millisecond)},
		},
	}
	seen := StatusInput{Runtime: "containerd", Volumes: true, Now: start.Add(time.Second),
		Health: func(string) Health { return Health{Started: true, Ready: true} }}
	data, err := json.Marshal(ComputeStatus(p, f, seen))
	if err != nil {
		t.Fatal(err)
	}
	stored := &corev1.PodStatus{}
	if err := json.Unmarshal(data, stored); err != nil {
		t.Fatal(err)
	}
	p.Status = *stored
	seen.Now = seen.Now.Add(time.Minute)
	if again := ComputeStatus(p, f, seen); !apiequality.Semantic.DeepEqual(stored, again) {
		t.Errorf("stored:\n%+v\ncomputed again:\n%+v", stored, again)
	}
}

// TestStopSignal checks that the status shows the stop signal of containers whose spec sets one; the API drops it from the spec
// unless the feature is on.
func TestStopSignal(t *testing.T) {
	withSignal := corev1.Container{Name: "with-signal", Lifecycle: &corev1.Lifecycle{StopSignal: new(corev1.SIGUSR1)}}
	for _, c := range []corev1.Container{withSignal, {Name: "default"}} {
		st := statusOfRun(StatusInput{}, &c, &fact.Container{Name: c.Name, State: fact.Running, StopSignal: "SIGUSR1"}, nil)
		if got := st.StopSignal != nil && *st.StopSignal == corev1.SIGUSR1; got != (c.Lifecycle != nil) {
			t.Errorf("%s: the stop signal is %v", c.Name, st.StopSignal)
		}
	}
}

// TestStartOfContainerThatNeverRan checks that the status of a container that could not be started has a startedAt, which is required:
// 1970, as with kubelets.
func TestStartOfContainerThatNeverRan(t *testing.T) {
	finished := time.Unix(1000, 0)
	run := &fact.Container{ID: "1", Name: "c", State: fact.Exited, ExitCode: 128, Reason: "StartError", Finished: finished}
	st := statusOfRun(StatusInput{Runtime: "containerd"}, &corev1.Container{Name: "c"}, run, nil)
	data, err := json.Marshal(st.State.Terminated)
	if err != nil {
		t.Fatal(err)
	}
	want := `{"exitCode":128,"reason":"StartError","startedAt":"1970-01-01T00:00:00Z","finishedAt":"1970-01-01T00:16:40Z",` +
		`"containerID":"containerd://1"}`
	if string(data) != want {
		t.Errorf("got %s, want %s", data, want)
	}
}
