package schedule

import (
	"fmt"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"proa.dev/hop"
	"proa.dev/schedule/framework"
	"proa.dev/schedule/podqueue"
	"proa.dev/schedule/waitrecord"
)

func benchNode(i int) *corev1.Node {
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("node-%d", i), Labels: map[string]string{
			corev1.LabelTopologyZone: fmt.Sprintf("zone-%d", i%3), corev1.LabelHostname: fmt.Sprintf("node-%d", i),
		}},
		Status: corev1.NodeStatus{Allocatable: corev1.ResourceList{
			corev1.ResourceCPU: resource.MustParse("32"), corev1.ResourceMemory: resource.MustParse("256Gi"),
			corev1.ResourcePods: resource.MustParse("110"),
		}},
	}
}

func benchPod(i int) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "bench", Name: fmt.Sprintf("pod-%d", i), UID: types.UID(fmt.Sprintf("uid-%d", i)),
			Labels: map[string]string{"app": "bench"},
		},
		Spec: corev1.PodSpec{
			SchedulerName: corev1.DefaultSchedulerName,
			Containers: []corev1.Container{{Name: "c", Image: "registry.k8s.io/pause:3.10",
				Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{
					corev1.ResourceCPU: resource.MustParse("100m"), corev1.ResourceMemory: resource.MustParse("500Mi"),
				}}}},
			Tolerations: []corev1.Toleration{
				{Key: corev1.TaintNodeNotReady, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute},
				{Key: corev1.TaintNodeUnreachable, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute},
			},
		},
	}
}

func benchState(nodes int) *framework.State {
	s := framework.NewState(nil)
	for i := range nodes {
		s.SetNode(benchNode(i))
	}
	return s
}

func benchProfile(b *testing.B) *framework.Profile {
	profiles, err := Config{}.profiles(framework.Deps{})
	if err != nil {
		b.Fatal(err)
	}
	return &profiles[0]
}

var benchSizes = []int{100, 1000, 5000}

// BenchmarkDecide measures a decision without cached results.
func BenchmarkDecide(b *testing.B) {
	for _, nodes := range benchSizes {
		b.Run(fmt.Sprint(nodes), func(b *testing.B) {
			s, profile, pod := benchState(nodes).Snapshot(), benchProfile(b), framework.NewPodInfo(benchPod(0))
			b.ReportAllocs()
			used := cpuTime()
			defer func() { b.ReportMetric(float64(cpuTime()-used)/float64(b.N), "cpu-ns/op") }()
			for i := 0; b.Loop(); i++ {
				if d := Decide(s, pod, profile, framework.Seed{Start: i, Tie: uint64(i)}); d.Node == "" {
					b.Fatal(d.Message())
				}
			}
		})
	}
}

// BenchmarkSchedule measures everything that is done for one of many equal Pods: making its PodInfo, deciding, recording the attempt,
// adding the Pod to its node, and handling the event of its binding.
func BenchmarkSchedule(b *testing.B) {
	for _, nodes := range benchSizes {
		b.Run(fmt.Sprint(nodes), func(b *testing.B) {
			state, profile, prepared, recent := benchState(nodes), benchProfile(b), newPreparedPods(), NewRecent()
			s := &scheduler{records: waitrecord.New(hop.NewRecorder(4096).Add)}
			capacity := nodes * 100
			b.ReportAllocs()
			at, used := 0, cpuTime()
			defer func() { b.ReportMetric(float64(cpuTime()-used)/float64(b.N), "cpu-ns/op") }()
			for i := 0; b.Loop(); i++ {
				if i%capacity == 0 && i > 0 {
					for _, p := range state.Pods() {
						state.RemovePod(p.Pod.UID)
					}
				}
				pod := benchPod(i)
				t := &attempt{Entry: &podqueue.Entry{Pod: framework.NewPodInfo(pod)}, profile: profile}
				t.info = t.Pod
				d := prepared.decide(state.Snapshot(), t, framework.Seed{Start: at, Tie: uint64(i)}, state.ChangesBetween)
				if d.Node == "" {
					b.Fatal(d.Message())
				}
				t.decision, t.decided = &d, time.Now()
				recent.add(t, &d)
				s.recordSearch(t)
				s.recordStep(t, hop.Step{Name: "bind", Detail: d.Node}, t.decided)
				s.recordAttempt(t, "")
				at = (at + d.Examined) % d.Total
				state.AddPod(t.info, d.Node)
				bound := *pod
				bound.Spec.NodeName = d.Node
				state.AddPod(state.UpdatedPodInfo(&bound), d.Node)
			}
		})
	}
}

// cpuTime returns the CPU time of this process.
func cpuTime() int64 {
	var r syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &r); err != nil {
		return 0
	}
	return r.Utime.Nano() + r.Stime.Nano()
}
