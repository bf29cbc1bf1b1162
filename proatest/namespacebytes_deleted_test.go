package proatest_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"proa.dev/kinds/lib/gr"
	"proa.dev/proatest"
	"proa.dev/run"
)

// TestNamespaceBytesOfDeletedObjects lets small objects that a finalizer holds grow after their deletion: it is bounded, too, and their
// end is not.
func TestNamespaceBytesOfDeletedObjects(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		const bound, size = 16 << 20, 1 << 20
		c := proatest.Start(t, proatest.Memory(), proatest.Alone(), proatest.InDir(dir), func(c *run.Config) { c.NamespaceBytes = bound })
		defer c.Stop()
		time.Sleep(5 * time.Second)
		const most = bound / size * 2
		for i := range most {
			name := fmt.Sprint("held-", i)
			if _, err := c.Client.Create(t.Context(), gr.ConfigMaps, &corev1.ConfigMap{
				ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, Finalizers: []string{"example.com/hold"}}}); err != nil {
				t.Fatal(err)
			}
			if err := c.Client.Delete(t.Context(), gr.ConfigMaps, "default", name, metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		change := func(i int, to func(*corev1.ConfigMap)) error {
			o, err := c.Client.Get(t.Context(), gr.ConfigMaps, "default", fmt.Sprint("held-", i), "")
			if err != nil {
				t.Fatal(err)
			}
			held := o.DeepCopyObject().(*corev1.ConfigMap)
			to(held)
			_, err = c.Client.Update(t.Context(), gr.ConfigMaps, held, "")
			synctest.Wait()
			return err
		}
		grown := 0
		for i := range most {
			err := change(i, func(held *corev1.ConfigMap) { held.Data = map[string]string{"x": strings.Repeat("x", size)} })
			if err == nil {
				grown++
			} else if !apierrors.IsForbidden(err) {
				t.Fatal(err)
			}
		}
		if grown > bound/size*5/4 {
			t.Errorf("%d deleted objects of 1 MiB in a namespace of 16 MiB", grown)
		}
		for i := range most {
			if err := change(i, func(held *corev1.ConfigMap) { held.Finalizers = nil }); err != nil {
				t.Fatalf("its end: %v", err)
			}
		}
	})
}
