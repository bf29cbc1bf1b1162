package proatest_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"

	"proa.dev/kinds/kind"
	"proa.dev/kinds/lib/gr"
	"proa.dev/proatest"
	"proa.dev/run"
)

// TestNodesFillNoSystemNamespace has a node that creates large objects where the bytes of others are not bounded.
func TestNodesFillNoSystemNamespace(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		const bound = 2 << 20
		c := proatest.Start(t, proatest.Memory(), proatest.Alone(), proatest.InDir(dir), func(c *run.Config) { c.NamespaceBytes = bound })
		defer c.Stop()
		time.Sleep(5 * time.Second)
		node := c.Server.Client(&user.DefaultInfo{Name: "system:node:a", Groups: []string{user.NodesGroup, user.AllAuthenticated}})
		large := strings.Repeat("x", 200<<10)
		slices := schema.GroupResource{Group: resourcev1.GroupName, Resource: "resourceslices"}
		for on, o := range map[schema.GroupResource]kind.Object{
			gr.Events: &corev1.Event{ObjectMeta: metav1.ObjectMeta{GenerateName: "e-", Namespace: "kube-system"},
				InvolvedObject: corev1.ObjectReference{Namespace: "kube-system"}, Message: "m", Reason: large},
			slices: &resourcev1.ResourceSlice{ObjectMeta: metav1.ObjectMeta{GenerateName: "s-", Annotations: map[string]string{"a": large}},
				Spec: resourcev1.ResourceSliceSpec{Driver: "a.example.com", NodeName: new("a"),
					Pool: resourcev1.ResourcePool{Name: "p", ResourceSliceCount: 1}}},
		} {
			var err error
			made := 0
			for ; err == nil && made < 20; made++ {
				_, err = node.Create(t.Context(), on, o.DeepCopyObject().(kind.Object))
				synctest.Wait()
			}
			if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "exceeded quota: stored bytes of the ") || made < 5 {
				t.Errorf("%s: created %d, %v", on, made, err)
			}
			if _, err := c.Client.Create(t.Context(), on, o); err != nil {
				t.Errorf("%s by others: %v", on, err)
			}
		}
	})
}
