package podsource_test

import (
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/authentication/user"

	"proa.dev/kinds/lib/gr"
	"proa.dev/node/fact"
	"proa.dev/node/podsource"
	"proa.dev/proatest"
)

// TestAPI takes Pods and mirrors through a real cluster, under the identity of the node.
func TestAPI(t *testing.T) {
	c := proatest.Start(t, proatest.Memory(), proatest.Alone())
	o, err := c.Client.Create(t.Context(), gr.Nodes, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}})
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	podsource.Put(t, filepath.Join(dir, "a.yaml"), podsource.Manifest("a", "i1"))
	var lives atomic.Bool
	lives.Store(true)
	s := podsource.New(podsource.Config{
		Node: "n", UID: o.GetUID, Folder: dir, IsRunning: func(types.UID) bool { return lives.Load() }, Log: podsource.Quiet(),
		Client: c.Server.Client(&user.DefaultInfo{Name: "system:node:n", Groups: []string{"system:nodes", "system:authenticated"}}),
	})
	u := podsource.Open(t, s)
	pod := func(name, node string) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "kube-system"}, Spec: corev1.PodSpec{
			NodeName: node, Containers: []corev1.Container{{Name: "c", Image: "x"}}, AutomountServiceAccountToken: new(false),
		}}
	}
	var seen []string
	for range 3 { // the static Pod, all of the API, and the mirror, in any order
		x, ok := u.Next()
		if !ok {
			t.Fatal("the stream has ended")
		}
		switch {
		case x.Pod == nil:
			seen = append(seen, "complete")
		case x.Pod.ResourceVersion != "":
			seen = append(seen, "mirrored")
		default:
			seen = append(seen, x.Pod.Name)
		}
	}
	slices.Sort(seen)
	if !slices.Equal(seen, []string{"a-n", "complete", "mirrored"}) {
		t.Fatal(seen)
	}
	eventually(t, func() bool {
		m, err := c.Client.Get(t.Context(), gr.Pods, "kube-system", "a-n", "")
		if err != nil {
			return false
		}
		refs := m.GetOwnerReferences()
		return len(refs) == 1 && refs[0].UID == o.GetUID() &&
			m.GetAnnotations()[corev1.MirrorPodAnnotationKey] == m.GetAnnotations()["kubernetes.io/config.hash"]
	})
	// Pods of this node come, those of others do not.
	for _, p := range []*corev1.Pod{pod("other", "m"), pod("mine", "n")} {
		if _, err := c.Client.Create(t.Context(), gr.Pods, p); err != nil {
			t.Fatal(err)
		}
	}
	u.Want("+mine x")
	zero := metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))}
	if err := c.Client.Delete(t.Context(), gr.Pods, "kube-system", "mine", zero); err != nil {
		t.Fatal(err)
	}
	u.Want("-mine x")
	// A mirror that somebody deletes comes back.
	if err := c.Client.Delete(t.Context(), gr.Pods, "kube-system", "a-n", zero); err != nil {
		t.Fatal(err)
	}
	u.Want("+a-n i1")
	// The mirror of a Pod that is no longer wanted stays until the Pod has ended.
	if err := os.Remove(filepath.Join(dir, "a.yaml")); err != nil {
		t.Fatal(err)
	}
	u.Want("-a-n i1")
	if _, err := c.Client.Get(t.Context(), gr.Pods, "kube-system", "a-n", ""); err != nil {
		t.Errorf("the mirror of a Pod that still runs: %v", err)
	}
	lives.Store(false)
	eventually(t, func() bool {
		_, err := c.Client.Get(t.Context(), gr.Pods, "kube-system", "a-n", "")
		return err != nil
	})
	c.Stop()
}

// TestAnnotationsFromTheAPIAreNotBelieved: a Pod of the API is never static, and one that says it is a mirror is neither run nor taken
// for the mirror of a static Pod, unless the node has made it itself.
func TestAnnotationsFromTheAPIAreNotBelieved(t *testing.T) {
	c := proatest.Start(t, proatest.Memory(), proatest.Alone())
	o, err := c.Client.Create(t.Context(), gr.Nodes, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}})
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	podsource.Put(t, filepath.Join(dir, "a.yaml"), podsource.Manifest("a", "i1"))
	mine := metav1.OwnerReference{APIVersion: "v1", Kind: "Node", Name: "n", UID: o.GetUID(), Controller: new(true)}
	pod := func(name string, annotations map[string]string, owners ...metav1.OwnerReference) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "kube-system", Annotations: annotations,
			OwnerReferences: owners}, Spec: corev1.PodSpec{
			NodeName: "n", Containers: []corev1.Container{{Name: "c", Image: "x"}}, AutomountServiceAccountToken: new(false),
		}}
	}
	mirror := func(hash string) map[string]string { return map[string]string{corev1.MirrorPodAnnotationKey: hash} }
	// Somebody is there before the node shows its static Pod: with its name, and with another.
	for _, p := range []*corev1.Pod{pod("a-n", mirror("x")), pod("orphan", mirror("alive")), pod("empty", mirror(""))} {
		if _, err := c.Client.Create(t.Context(), gr.Pods, p); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := c.Client.Create(t.Context(), gr.Pods, pod("owned", mirror("x"), mine)); !apierrors.IsForbidden(err) {
		t.Errorf("a mirror in the name of the node: %v", err)
	}
	s := podsource.New(podsource.Config{
		Node: "n", UID: o.GetUID, Folder: dir, IsRunning: func(uid types.UID) bool { return uid == "alive" }, Log: podsource.Quiet(),
		Client: c.Server.Client(&user.DefaultInfo{Name: "system:node:n", Groups: []string{"system:nodes", "system:authenticated"}}),
	})
	u := podsource.Open(t, s)
	for shown, complete := false, false; !shown || !complete; { // in any order; shown is when its real mirror is there
		x, ok := u.Next()
		if !ok {
			t.Fatal("the stream has ended")
		}
		if x.Pod != nil && x.Pod.Name != "a-n" {
			t.Fatalf("a mirror is to be run: %s", x.Pod.Name)
		}
		complete = complete || x.Complete
		shown = shown || x.Pod != nil && x.Pod.ResourceVersion != ""
	}
	if m, err := c.Client.Get(t.Context(), gr.Pods, "kube-system", "a-n", ""); err != nil || len(m.GetOwnerReferences()) != 1 ||
		m.GetOwnerReferences()[0].UID != o.GetUID() {
		t.Errorf("the mirror is %v (%v)", m, err)
	}
	for _, name := range []string{"orphan", "empty"} {
		eventually(t, func() bool {
			_, err := c.Client.Get(t.Context(), gr.Pods, "kube-system", name, "")
			return apierrors.IsNotFound(err)
		})
	}
	for _, annotations := range []map[string]string{{"kubernetes.io/config.source": "file"},
		{"kubernetes.io/config.source": "http", "kubernetes.io/config.hash": "x", "kubernetes.io/config.seen": "now"}} {
		if _, err := c.Client.Create(t.Context(), gr.Pods,
			pod("says-"+annotations["kubernetes.io/config.source"], annotations)); err != nil {
			t.Fatal(err)
		}
		x, ok := u.Next()
		if !ok || x.Pod == nil || fact.Static(x.Pod) || fact.Critical(x.Pod) {
			t.Errorf("%v: static %v, critical %v", annotations, x.Pod != nil && fact.Static(x.Pod), x.Pod != nil && fact.Critical(x.Pod))
		}
	}
	c.Stop()
}

func eventually(t *testing.T, is func() bool) {
	t.Helper()
	for range 500 {
		if is() {
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
	t.Fatal("it never was so")
}
