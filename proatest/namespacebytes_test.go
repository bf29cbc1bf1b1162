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

// TestNamespaceBytes fills a namespace: the write that exceeds its bytes is refused, updates of what is there still fit, other namespaces
// and those of the system go on, and what is deleted makes room.
func TestNamespaceBytes(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		const bound, size = 64 << 20, 1 << 20
		c := proatest.Start(t, proatest.Memory(), proatest.Alone(), proatest.InDir(dir), func(c *run.Config) { c.NamespaceBytes = bound })
		defer c.Stop()
		time.Sleep(5 * time.Second)
		create := func(namespace, name string, bytes int) (*corev1.ConfigMap, error) {
			o := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
				Data: map[string]string{"x": strings.Repeat("x", bytes)}}
			out, err := c.Client.Create(t.Context(), gr.ConfigMaps, o)
			synctest.Wait()
			if err != nil {
				return nil, err
			}
			return out.(*corev1.ConfigMap), nil
		}
		var first *corev1.ConfigMap
		var err error
		n := 0
		for ; err == nil && n <= bound/size; n++ {
			var o *corev1.ConfigMap
			if o, err = create("default", fmt.Sprint("big-", n), size); n == 0 {
				first = o
			}
		}
		if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "exceeded quota: stored bytes of the namespace") ||
			!strings.Contains(err.Error(), "limited: bytes=65536Ki") || n < bound/size-2 {
			t.Fatalf("after %d objects: %v", n, err)
		}
		for i := 0; ; i++ { // small ones count with what they cost beside
			if _, err := create("default", fmt.Sprint("small-", i), 1); apierrors.IsForbidden(err) {
				break
			}
			if i > 2*size/1024 {
				t.Fatal("small objects are not bounded")
			}
		}
		first.Labels = map[string]string{"a": strings.Repeat("a", 60)}
		if _, err := c.Client.Update(t.Context(), gr.ConfigMaps, first, ""); err != nil {
			t.Errorf("a small update in a full namespace: %v", err)
		}
		event := &corev1.Event{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "e"},
			InvolvedObject: corev1.ObjectReference{Namespace: "default"}}
		if _, err := c.Client.Create(t.Context(), gr.Events, event); !apierrors.IsForbidden(err) {
			t.Errorf("Events do not count: %v", err)
		}
		for _, namespace := range []string{"kube-system", "kube-public"} {
			if _, err := create(namespace, "more", size); err != nil {
				t.Errorf("%s: %v", namespace, err)
			}
		}
		for i := range 3 {
			if err := c.Client.Delete(t.Context(), gr.ConfigMaps, "default", fmt.Sprint("big-", i), metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait()
		if _, err := create("default", "again", size); err != nil {
			t.Errorf("after deletions: %v", err)
		}
	})
}
