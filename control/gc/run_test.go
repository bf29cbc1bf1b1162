package gc_test

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"proa.dev/control"
	"proa.dev/control/gc"
	"proa.dev/kinds"
	"proa.dev/kinds/gr"
	"proa.dev/kinds/kind"
	"proa.dev/proatest"
	"proa.dev/run"
)

func TestResourcesThatComeLater(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		cluster := proatest.Start(t, proatest.Memory(), proatest.Alone(), proatest.InDir(dir), func(c *run.Config) {
			c.Loops = func([]control.Controller) []control.Controller { return nil }
		})
		var mu sync.Mutex
		served := []string{"configmaps", "namespaces"}
		g := gc.New(gc.Resources(func() []*kind.Def {
			mu.Lock()
			defer mu.Unlock()
			return slices.DeleteFunc(kinds.All(), func(d *kind.Def) bool { return !slices.Contains(served, d.Plural) })
		}))
		changed := make(chan struct{})
		ctx, stop := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() {
			if err := g.Run(ctx, slog.New(slog.DiscardHandler), cluster.Client, nil, changed); err != nil {
				t.Error(err)
			}
		})
		serve := func(resources ...string) {
			mu.Lock()
			served = resources
			mu.Unlock()
			changed <- struct{}{}
			synctest.Wait()
		}
		owner := func(name string) *corev1.Secret {
			o, err := cluster.Client.Create(ctx, gr.Secrets, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}})
			if err != nil {
				t.Fatal(err)
			}
			return o.(*corev1.Secret)
		}
		owned := func(name string, by *corev1.Secret) {
			meta := metav1.ObjectMeta{Namespace: "default", Name: name, OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Secret", Name: by.Name, UID: by.UID}}}
			if _, err := cluster.Client.Create(ctx, gr.ConfigMaps, &corev1.ConfigMap{ObjectMeta: meta}); err != nil {
				t.Fatal(err)
			}
		}
		remove := func(name string) {
			if err := cluster.Client.Delete(ctx, gr.Secrets, "default", name, metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
		}
		there := func(name string, want bool) {
			t.Helper()
			synctest.Wait()
			_, err := cluster.Client.Get(ctx, gr.ConfigMaps, "default", name, "")
			if (err == nil) != want || (err != nil && !apierrors.IsNotFound(err)) {
				t.Errorf("%s: %v, want it there: %v", name, err, want)
			}
		}
		synctest.Wait()
		a, b := owner("a"), owner("b")
		owned("early", a)
		owned("kept", b)
		remove("a")
		there("early", true) // nobody knows Secrets yet
		serve("configmaps", "namespaces", "secrets")
		there("early", false)
		there("kept", true)
		owned("late", owner("c"))
		remove("c")
		there("late", false)
		serve("configmaps", "namespaces") // the kind is gone again
		owned("unjudged", a)
		there("unjudged", true)
		remove("b")
		there("kept", true)
		serve("configmaps", "namespaces", "secrets")
		there("kept", false)
		there("unjudged", false)
		// An object of the whole cluster, and a kind of its owner that comes later.
		serve("configmaps", "namespaces", "clusterroles")
		role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "r", OwnerReferences: []metav1.OwnerReference{
			{APIVersion: "scheduling.k8s.io/v1", Kind: "PriorityClass", Name: "nobody", UID: "11111111-1111-1111-1111-111111111111"},
		}}}
		if _, err := cluster.Client.Create(ctx, gr.ClusterRoles, role); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if _, err := cluster.Client.Get(ctx, gr.ClusterRoles, "", "r", ""); err != nil {
			t.Error(err)
		}
		serve("configmaps", "namespaces", "clusterroles", "priorityclasses")
		if _, err := cluster.Client.Get(ctx, gr.ClusterRoles, "", "r", ""); !apierrors.IsNotFound(err) {
			t.Errorf("the role is still there: %v", err)
		}
		stop()
		wg.Wait()
		cluster.Stop()
	})
}
