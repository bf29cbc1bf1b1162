package agentmetrics

import (
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"proa.dev/node/fact"
)

func terminated(name, id string, code int32, reason string) corev1.ContainerStatus {
	end := &corev1.ContainerStateTerminated{ContainerID: id, ExitCode: code, Reason: reason}
	return corev1.ContainerStatus{Name: name, State: corev1.ContainerState{Terminated: end}}
}

func TestStatusesAreCountedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := New()
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "u", Name: "p", Namespace: "ns"}}
		w := m.NewPodRecorder(time.Now())
		time.Sleep(3 * time.Second)
		runningStatus := &corev1.PodStatus{Phase: corev1.PodRunning}
		runningStatus.InitContainerStatuses = []corev1.ContainerStatus{terminated("i", "x", 0, "Completed")}
		w.Status(p, &fact.Pod{}, runningStatus)
		w.Status(p, &fact.Pod{}, runningStatus) // the Pod does not show the first write yet, as is usual for a static Pod
		p = p.DeepCopy()
		p.Status = *runningStatus
		endedStatus := runningStatus.DeepCopy()
		endedStatus.ContainerStatuses = []corev1.ContainerStatus{terminated("c", "y", 137, "OOMKilled")}
		w.Status(p, &fact.Pod{}, endedStatus)
		p.Status = *endedStatus
		w.Status(p, &fact.Pod{}, endedStatus)
		old := m.NewPodRecorder(time.Now())
		ran := &fact.Pod{Containers: []fact.Container{{Started: time.Now().Add(-time.Hour)}}}
		old.Status(&corev1.Pod{}, ran, &corev1.PodStatus{Phase: corev1.PodRunning})
		wantLines(t, scrape(t, m, "").Body.String(),
			`kubelet_terminated_containers_total{container_type="init_container",exit_code="0",reason="Completed"} 1`,
			`kubelet_terminated_containers_total{container_type="container",exit_code="137",reason="OOMKilled"} 1`,
			"kubelet_pod_start_duration_seconds_sum 3", "kubelet_pod_start_duration_seconds_count 1",
		)
	})
}

func TestSyncDurationIncludesWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := New()
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "u", Generation: 1}}
		w := m.NewPodRecorder(time.Now())
		sync := func(p *corev1.Pod, took time.Duration, isEnding bool) {
			w.BeginSync(p, isEnding)
			w.EndSync(true) // the work is still running
			time.Sleep(took)
			w.BeginSync(p, isEnding)
			w.EndSync(false)
		}
		sync(p, 2*time.Second, false)
		sync(p, 3*time.Second, false)
		next := p.DeepCopy()
		next.Generation++
		sync(next, 4*time.Second, false)
		sync(next, 5*time.Second, true)
		wantLines(t, scrape(t, m, "").Body.String(),
			`kubelet_pod_worker_duration_seconds_sum{operation_type="create"} 2`,
			`kubelet_pod_worker_duration_seconds_sum{operation_type="sync"} 3`,
			`kubelet_pod_worker_duration_seconds_sum{operation_type="update"} 4`,
			`kubelet_pod_worker_duration_seconds_sum{operation_type="kill"} 5`,
		)
	})
}

func TestInitTime(t *testing.T) {
	always := corev1.ContainerRestartPolicyAlways
	p := &corev1.Pod{Spec: corev1.PodSpec{
		InitContainers:      []corev1.Container{{Name: "a"}, {Name: "sidecar", RestartPolicy: &always}, {Name: "b"}},
		EphemeralContainers: []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: "e"}}},
	}}
	t0 := time.Unix(100, 0)
	f := &fact.Pod{Sandboxes: []fact.Sandbox{{ID: "s"}}}
	for i, name := range []string{"a", "sidecar", "b"} {
		ended := t0.Add(time.Duration(i+1) * time.Second)
		f.Containers = append(f.Containers, fact.Container{Name: name, SandboxID: "s", State: fact.Exited, Started: t0, Finished: ended})
	}
	if got := initTime(p, f); got != 4*time.Second || initTime(p, nil) != 0 {
		t.Error(got)
	}
	for name, want := range map[string]ContainerType{"a": InitContainer, "e": EphemeralContainer, "c": Container} {
		if got := TypeOf(p, name); got != want {
			t.Errorf("%s is %s", name, got)
		}
	}
}
