package controllers

import (
	"context"
	"iter"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"proa.dev/client"
	"proa.dev/control"
	"proa.dev/control/garbagecollector"
	"proa.dev/kinds"
	"proa.dev/kinds/kind"
	"proa.dev/kinds/lib/gr"
	"proa.dev/proatest"
	"proa.dev/run"
)

// lossyClient is a client whose views drop deletions, and yield a gap on request.
type lossyClient struct {
	client.Client
	gaps map[schema.GroupResource]chan struct{}
}

func (d *lossyClient) View(ctx context.Context, on schema.GroupResource) (client.View, error) {
	v, err := d.Client.View(ctx, on)
	return &lossyView{v, d.gaps[on]}, err
}

type lossyView struct {
	client.View
	gap chan struct{}
}

func (d *lossyView) Events(ctx context.Context) iter.Seq[client.Event] {
	return func(yield func(client.Event) bool) {
		events := make(chan client.Event)
		var wg sync.WaitGroup
		defer wg.Wait()
		ctx, stop := context.WithCancel(ctx)
		defer stop()
		wg.Go(func() {
			for ev := range d.View.Events(ctx) {
				select {
				case events <- ev:
				case <-ctx.Done():
					return
				}
			}
		})
		for {
			select {
			case <-ctx.Done():
				return
			case ev := <-events:
				if !ev.Deleted && !yield(ev) {
					return
				}
			case <-d.gap:
				if !yield(client.Event{Gap: true}) {
					return
				}
				for o := range d.List("") {
					if !yield(client.Event{Object: o}) {
						return
					}
				}
			}
		}
	}
}

// TestGCAfterMissedDeletions deletes an owner without an event, and checks that its dependents are deleted after a gap.
func TestGCAfterMissedDeletions(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		cluster := proatest.Start(t, proatest.Memory(), proatest.Alone(), proatest.InDir(dir), func(c *run.Config) {
			c.FilterControllers = func([]control.Controller) []control.Controller { return nil }
		})
		c := cluster.Client
		d := &lossyClient{c, map[schema.GroupResource]chan struct{}{gr.PriorityClasses: make(chan struct{})}}
		ctl := garbagecollector.New(garbagecollector.Resources(func() []*kind.Def {
			return slices.DeleteFunc(kinds.All(), func(d *kind.Def) bool {
				return !slices.Contains([]string{"configmaps", "clusterroles", "namespaces", "priorityclasses"}, d.Plural)
			})
		})).Controller()
		ctx, stop := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() {
			if err := control.Run(ctx, slog.New(slog.DiscardHandler), d, ctl, nil); err != nil {
				t.Error(err)
			}
		})
		o, err := c.Create(ctx, gr.ClusterRoles, &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "owner"}})
		if err != nil {
			t.Fatal(err)
		}
		refs := func(uid types.UID) []metav1.OwnerReference {
			return []metav1.OwnerReference{{APIVersion: "rbac.authorization.k8s.io/v1", Kind: "ClusterRole", Name: "owner", UID: uid}}
		}
		if _, err := c.Create(ctx, gr.ConfigMaps,
			&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "a",
				OwnerReferences: refs(o.GetUID())}}); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Create(ctx, gr.ClusterRoles,
			&rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "b", OwnerReferences: refs(o.GetUID())}}); err != nil {
			t.Fatal(err)
		}
		settle() // until the collector has seen both with their owner
		if err := c.Delete(ctx, gr.ClusterRoles, "", "owner", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		check := func(want bool) {
			t.Helper()
			settle()
			_, err := c.Get(ctx, gr.ConfigMaps, "default", "a", "")
			_, err2 := c.Get(ctx, gr.ClusterRoles, "", "b", "")
			for _, e := range []error{err, err2} {
				if (e == nil) != want || (e != nil && !apierrors.IsNotFound(e)) {
					t.Errorf("there: %v, %v; want %v", err, err2, want)
				}
			}
		}
		check(true)                              // without events nothing happens
		d.gaps[gr.PriorityClasses] <- struct{}{} // a gap in any view wakes all keys
		check(false)
		stop()
		wg.Wait()
		cluster.Stop()
	})
}
