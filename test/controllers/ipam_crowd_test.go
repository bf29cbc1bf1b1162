package controllers

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"proa.dev/control"
	"proa.dev/control/ipam"
	"proa.dev/kinds/lib/gr"
	"proa.dev/proatest"
	"proa.dev/run"
)

// TestIPAMConcurrentNodes creates a thousand nodes concurrently while the controller starts: in the end each has its own network.
func TestIPAMConcurrentNodes(t *testing.T) {
	t.Parallel()
	const count = 1000
	dir := t.TempDir()
	ranges, err := ipam.Parse([]string{"10.128.0.0/14"}, 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		cluster := proatest.Start(t, proatest.Memory(), proatest.Alone(), proatest.InDir(dir), func(c *run.Config) {
			c.FilterControllers = func([]control.Controller) []control.Controller { return nil }
		})
		ctx, stop := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		createNodes := func(from, to int) {
			for i := from; i < to; i++ {
				n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("n%d", i)}}
				if _, err := cluster.Client.Create(ctx, gr.Nodes, n); err != nil {
					t.Error(err)
				}
			}
		}
		createNodes(0, count/2)
		wg.Go(func() {
			if err := control.Run(ctx, slog.New(slog.DiscardHandler), cluster.Client, ipam.Controller(ranges), nil); err != nil {
				t.Error(err)
			}
		})
		createNodes(count/2, count)
		time.Sleep(time.Minute)
		synctest.Wait()
		view, err := cluster.Client.View(ctx, gr.Nodes)
		if err != nil {
			t.Fatal(err)
		}
		has := map[string]string{}
		for o := range view.List("") {
			cidr := o.(*corev1.Node).Spec.PodCIDR
			if cidr == "" || has[cidr] != "" {
				t.Errorf("%s has %q, and so has %q", o.GetName(), cidr, has[cidr])
			}
			has[cidr] = o.GetName()
		}
		if len(has) != count {
			t.Errorf("%d networks are given to %d nodes", len(has), count)
		}
		for cidr, owner := range has {
			claimNetwork(t, cluster, cidr, owner)
			break
		}
		stop()
		wg.Wait()
		cluster.Stop()
	})
}

// claimNetwork checks that a network is not assigned to another node as long as its owner exists.
func claimNetwork(t *testing.T, cluster *proatest.Cluster, cidr, owner string) {
	conflicting := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "conflicting"}, Spec: corev1.NodeSpec{PodCIDR: cidr}}
	if _, err := cluster.Client.Create(t.Context(), gr.Nodes, conflicting.DeepCopy()); !apierrors.IsInvalid(err) {
		t.Errorf("%s of %s is given to another: %v", cidr, owner, err)
	}
	if err := cluster.Client.Delete(t.Context(), gr.Nodes, "", owner, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := cluster.Client.Create(t.Context(), gr.Nodes, conflicting); err != nil {
		t.Errorf("%s is not free although %s is gone: %v", cidr, owner, err)
	}
}
