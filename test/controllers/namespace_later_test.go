package controllers

import (
	"context"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"proa.dev/control"
	"proa.dev/control/namespace"
	"proa.dev/kinds/lib/gr"
	"proa.dev/proatest"
	"proa.dev/run"
)

// TestNamespaceDeletionWithLaterKinds deletes a namespace with objects of a kind that was not served when the controller started.
func TestNamespaceDeletionWithLaterKinds(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		cluster := proatest.Start(t, proatest.Memory(), proatest.Alone(), proatest.InDir(dir), func(c *run.Config) {
			c.FilterControllers = func([]control.Controller) []control.Controller { return nil }
		})
		c := cluster.Client
		ctx, stop := context.WithCancel(t.Context())
		ctl := namespace.Controller(namespace.Config{
			Resources: []schema.GroupResource{gr.ConfigMaps},
			Custom:    func() []schema.GroupResource { return []schema.GroupResource{gr.Secrets} }, Open: c.View,
		})
		var wg sync.WaitGroup
		wg.Go(func() {
			if err := control.Run(ctx, slog.New(slog.DiscardHandler), c, ctl, nil); err != nil {
				t.Error(err)
			}
		})
		must := func(err error) {
			t.Helper()
			if err != nil {
				t.Fatal(err)
			}
		}
		_, err := c.Create(ctx, gr.Namespaces, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "blue"}})
		must(err)
		for _, name := range []string{"a", "b", "c"} {
			meta := metav1.ObjectMeta{Namespace: "blue", Name: name}
			if name == "c" {
				meta.Finalizers = []string{"test/hold"}
			}
			_, err = c.Create(ctx, gr.Secrets, &corev1.Secret{ObjectMeta: meta})
			must(err)
		}
		must(c.Delete(ctx, gr.Namespaces, "", "blue", metav1.DeleteOptions{}))
		time.Sleep(time.Minute)
		o, err := c.Get(ctx, gr.Namespaces, "", "blue", "")
		must(err)
		message := ""
		for _, x := range o.(*corev1.Namespace).Status.Conditions {
			if x.Type == corev1.NamespaceContentRemaining {
				message = x.Message
			}
		}
		if message != "Some resources are remaining: secrets. has 1 resource instances" {
			t.Errorf("the message is %q", message)
		}
		held, err := c.Get(ctx, gr.Secrets, "blue", "c", "")
		must(err)
		held.SetFinalizers(nil)
		_, err = c.Update(ctx, gr.Secrets, held, "")
		must(err)
		time.Sleep(2 * time.Second)
		if _, err := c.Get(ctx, gr.Namespaces, "", "blue", ""); !apierrors.IsNotFound(err) {
			t.Errorf("the namespace is still there: %v", err)
		}
		stop()
		wg.Wait()
		cluster.Stop()
	})
}
