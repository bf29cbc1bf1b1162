package proatest_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"proa.dev/kinds/kind"
	"proa.dev/kinds/lib/gr"
	"proa.dev/proatest"
)

// TestRecordsSayWhatRemovesAnObject checks which write of a deletion has removed the object: the request itself, the update that takes
// the last finalizer away, or the delete of the node when the Pod has ended. An object that is being deleted does not count as ready.
func TestRecordsSayWhatRemovesAnObject(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		c := proatest.Start(t, proatest.Memory(), proatest.Alone(), proatest.Simulate(1), proatest.InDir(dir))
		defer c.Stop()
		ctx := t.Context()
		must := func(o kind.Object, err error) kind.Object {
			t.Helper()
			if err != nil {
				t.Fatal(err)
			}
			return o
		}
		meta := metav1.ObjectMeta{Namespace: "default", Name: "plain"}
		plain := must(c.Client.Create(ctx, gr.ConfigMaps, &corev1.ConfigMap{ObjectMeta: meta}))
		meta.Name, meta.Finalizers = "held", []string{"example.com/hold"}
		held := must(c.Client.Create(ctx, gr.ConfigMaps, &corev1.ConfigMap{ObjectMeta: meta}))
		pod := must(c.Client.Create(ctx, gr.Pods, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"},
			Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "web"}}}}))
		time.Sleep(time.Minute)
		synctest.Wait()
		for _, o := range []kind.Object{plain, held} {
			if err := c.Client.Delete(ctx, gr.ConfigMaps, "default", o.GetName(), metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		if err := c.Client.Delete(ctx, gr.Pods, "default", "web", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		next := must(c.Client.Get(ctx, gr.ConfigMaps, "default", "held", "")).DeepCopyObject().(*corev1.ConfigMap)
		next.Finalizers = nil
		must(c.Client.Update(ctx, gr.ConfigMaps, next, ""))
		time.Sleep(time.Minute)
		synctest.Wait()
		for uid, want := range map[types.UID]string{
			plain.GetUID(): "create, delete removed", held.GetUID(): "create, delete, update removed",
			pod.GetUID(): "delete, delete removed", // behind what came before
		} {
			var writes []string
			for _, r := range c.Server.HopsOf(uid) {
				if !r.IsWrite() {
					continue
				}
				text := r.Verb
				if r.Removed {
					text += " removed"
				}
				if r.Verb == "delete" && r.Ready {
					text += " ready"
				}
				writes = append(writes, text)
			}
			if got := strings.Join(writes, ", "); !strings.HasSuffix(got, want) || strings.Count(got, "removed") != 1 {
				t.Errorf("the writes are %s, want %s", got, want)
			}
		}
	})
}
