package schedule_test

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/user"

	"proa.dev/client"
	"proa.dev/control"
	"proa.dev/kinds/lib/gr"
	"proa.dev/proatest"
	"proa.dev/run"
	"proa.dev/schedule"
)

// BenchmarkBind measures how many waiting Pods a scheduler binds in a second, with the API server in the same process. The first
// number of a name is that of nodes, the second that of Pods.
func BenchmarkBind(b *testing.B) {
	for _, size := range [][2]int{{100, 5000}, {1000, 5000}} {
		b.Run(fmt.Sprintf("%d/%d", size[0], size[1]), func(b *testing.B) {
			for b.Loop() {
				bindAll(b, size[0], size[1])
			}
		})
	}
}

func bindAll(b *testing.B, nodes, pods int) {
	b.StopTimer()
	fewControllers := func(c *run.Config) {
		c.FilterControllers = func(all []control.Controller) []control.Controller {
			return slices.DeleteFunc(all, func(ctl control.Controller) bool { return ctl.Name != "service-account-controller" })
		}
	}
	cluster := proatest.Start(b, fewControllers)
	createObjects(b, cluster.Client, nodes, pods)
	ctx, stop := context.WithCancel(b.Context())
	view, err := cluster.Client.View(ctx, gr.Pods)
	if err != nil {
		b.Fatal(err)
	}
	c := cluster.Server.Client(&user.DefaultInfo{Name: "system:kube-scheduler", Groups: []string{user.AllAuthenticated}})
	start, used := time.Now(), cpuTime()
	b.StartTimer()
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := schedule.Run(ctx, slog.New(slog.DiscardHandler), c, schedule.Config{}); err != nil {
			b.Error(err)
		}
	})
	bound := map[string]bool{}
	for ev := range view.Events(ctx) {
		if p, ok := ev.Object.(*corev1.Pod); ok && p.Spec.NodeName != "" {
			bound[p.Name] = true
		}
		if len(bound) == pods {
			break
		}
	}
	took, cost := time.Since(start), cpuTime()-used
	b.ReportMetric(float64(pods)/took.Seconds(), "binds/s")
	b.ReportMetric(float64(cost.Microseconds())/float64(pods), "cpu-µs/bind")
	b.StopTimer()
	stop()
	wg.Wait()
	cluster.Stop()
	b.StartTimer()
}

// cpuTime returns the CPU time that this process has used, which does not depend on other processes.
func cpuTime() time.Duration {
	var r syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &r); err != nil {
		return 0
	}
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}

func createObjects(b *testing.B, c client.Client, nodes, pods int) {
	ctx := b.Context()
	var wg sync.WaitGroup
	each := func(n int, next func(i int) error) {
		for w := range 16 {
			wg.Go(func() {
				for i := w; i < n; i += 16 {
					if err := next(i); err != nil {
						b.Error(err)
						return
					}
				}
			})
		}
		wg.Wait()
	}
	each(nodes, func(i int) error {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("node-%d", i)}}
		o, err := c.Create(ctx, gr.Nodes, n)
		if err != nil {
			return err
		}
		n = o.(*corev1.Node)
		n.Spec.Taints = nil
		if o, err = c.Update(ctx, gr.Nodes, n, ""); err != nil {
			return err
		}
		n = o.(*corev1.Node)
		n.Status.Allocatable = corev1.ResourceList{
			corev1.ResourceCPU: resource.MustParse("32"), corev1.ResourceMemory: resource.MustParse("256Gi"),
			corev1.ResourcePods: resource.MustParse("110"),
		}
		n.Status.Capacity = n.Status.Allocatable
		_, err = c.Update(ctx, gr.Nodes, n, "status")
		return err
	})
	each(pods, func(i int) error {
		_, err := c.Create(ctx, gr.Pods, &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprintf("pod-%d", i), Labels: map[string]string{"app": "bench"}},
			Spec: corev1.PodSpec{Containers: []corev1.Container{{
				Name: "c", Image: "registry.k8s.io/pause:3.10", Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{
					corev1.ResourceCPU: resource.MustParse("100m"), corev1.ResourceMemory: resource.MustParse("500Mi"),
				}},
			}}},
		})
		return err
	})
}
