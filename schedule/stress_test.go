package schedule_test

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/user"

	"proa.dev/client"
	"proa.dev/control"
	"proa.dev/kinds/kind"
	"proa.dev/kinds/lib/gr"
	"proa.dev/proatest"
	"proa.dev/run"
	"proa.dev/schedule"
)

// flakyClient fails two of seven bindings: one is not made, of the other only the response is lost.
type flakyClient struct {
	client.Client
	mu sync.Mutex
	n  int
}

func (m *flakyClient) Act(ctx context.Context, on groupResource, namespace, name, sub string, body kind.Object) (kind.Object, error) {
	m.mu.Lock()
	m.n++
	n := m.n
	m.mu.Unlock()
	if n%7 == 0 {
		return nil, fmt.Errorf("the request was not sent")
	}
	o, err := m.Client.Act(ctx, on, namespace, name, sub, body)
	if n%7 == 3 && err == nil {
		return nil, fmt.Errorf("the response was lost")
	}
	return o, err
}

// TestStress creates and deletes Pods while bindings fail, and checks that every Pod that fits is bound in the end, and
// that no node is ever overcommitted.
func TestStress(t *testing.T) {
	const nodes, perNode = 12, 10
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		cluster := proatest.Start(t, proatest.Memory(), proatest.Alone(), proatest.InDir(dir), func(c *run.Config) {
			c.FilterControllers = func([]control.Controller) []control.Controller { return nil }
		})
		admin := cluster.Client
		scheduler := &flakyClient{Client: cluster.Server.Client(&user.DefaultInfo{Name: "system:kube-scheduler",
			Groups: []string{user.AllAuthenticated}})}
		ctx, stop := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() {
			if err := schedule.Run(ctx, slog.New(slog.DiscardHandler), scheduler, schedule.Config{}); err != nil {
				t.Error(err)
			}
		})
		s := &loopTest{T: t, admin: admin}
		node := func(i int) {
			if err := s.create(fmt.Sprintf("kind: Node\nmetadata: {name: n%d}\nstatus: {allocatable: {cpu: %q, memory: 64Gi, pods: \"110\"}}\n", i, fmt.Sprint(perNode))); err != nil {
				t.Fatal(err)
			}
		}
		account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "default"}}
		if _, err := admin.Create(ctx, gr.ServiceAccounts, account); err != nil {
			t.Fatal(err)
		}
		pod := func(i int) {
			p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprintf("p%d", i),
				Labels: map[string]string{"app": fmt.Sprint(i % 3)}}}
			p.Spec.Containers = []corev1.Container{{Name: "c", Image: "i",
				Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{"cpu": resource.MustParse("1")}}}}
			if _, err := admin.Create(ctx, gr.Pods, p); err != nil {
				t.Fatal(err)
			}
		}
		view, err := admin.View(ctx, gr.Pods)
		if err != nil {
			t.Fatal(err)
		}
		countPods := func() (bound, waiting int) {
			load := map[string]int{}
			for o := range view.List("") {
				if on := o.(*corev1.Pod).Spec.NodeName; on != "" {
					load[on]++
					bound++
				} else {
					waiting++
				}
			}
			for on, n := range load {
				if n > perNode {
					t.Fatalf("%s has %d Pods and capacity for %d", on, n, perNode)
				}
			}
			return bound, waiting
		}
		checkSettled := func(step string, wantBound, wantWaiting int) {
			time.Sleep(time.Minute)
			synctest.Wait()
			if bound, waiting := countPods(); bound != wantBound || waiting != wantWaiting {
				t.Fatalf("%s: %d pods are bound and %d wait, want %d and %d", step, bound, waiting, wantBound, wantWaiting)
			}
		}
		for i := range nodes - 2 {
			node(i)
		}
		for i := range nodes*perNode + 5 {
			pod(i)
			if i%20 == 0 {
				countPods()
			}
		}
		checkSettled("full", (nodes-2)*perNode, 2*perNode+5)
		node(nodes - 2)
		node(nodes - 1)
		checkSettled("more nodes", nodes*perNode, 5)
		r := rand.New(rand.NewPCG(5, 6))
		deleted := 0
		for _, i := range r.Perm(nodes*perNode + 5)[:30] {
			o, found := view.Get("default", fmt.Sprintf("p%d", i))
			if !found || o.(*corev1.Pod).Spec.NodeName == "" {
				continue
			}
			deleted++
			if err := admin.Delete(ctx, gr.Pods, "default", o.GetName(),
				metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))}); err != nil {
				t.Fatal(err)
			}
			countPods()
		}
		checkSettled("fewer pods", nodes*perNode+5-deleted, 0)
		stop()
		wg.Wait()
		cluster.Stop()
	})
}
