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

// TestPodsOfTheAPI reads Pods from a real cluster and creates mirror Pods in it, with the identity of the node.
func TestPodsOfTheAPI(t *testing.T) {
	c := proatest.Start(t, proatest.Memory(), proatest.Alone())
	o, err := c.Client.Create(t.Context(), gr.Nodes, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}})
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	podsource.WriteFile(t, filepath.Join(dir, "a.yaml"), podsource.Manifest("a", "i1"))
	var running atomic.Bool
	running.Store(true)
	s := podsource.New(podsource.Config{
		Node: "n", UID: o.GetUID, Folder: dir, IsRunning: func(types.UID) bool { return running.Load() }, Log: podsource.DiscardLogger(),
		Client: c.Server.Client(&user.DefaultInfo{Name: "system:node:n", Groups: []string{"system:nodes", "system:authenticated"}}),
	})
	u := podsource.OpenStream(t, s)
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
	// Pods of this node are received, those of other nodes are not.
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
	// A mirror Pod that a user deletes is created again.
	if err := c.Client.Delete(t.Context(), gr.Pods, "kube-system", "a-n", zero); err != nil {
		t.Fatal(err)
	}
	u.Want("+a-n i1")
	// The mirror of a removed static Pod stays until the Pod has ended.
	if err := os.Remove(filepath.Join(dir, "a.yaml")); err != nil {
		t.Fatal(err)
	}
	u.Want("-a-n i1")
	if _, err := c.Client.Get(t.Context(), gr.Pods, "kube-system", "a-n", ""); err != nil {
		t.Errorf("the mirror of a running Pod: %v", err)
	}
	running.Store(false)
	eventually(t, func() bool {
		_, err := c.Client.Get(t.Context(), gr.Pods, "kube-system", "a-n", "")
		return err != nil
	})
	c.Stop()
}

// TestAnnotationsOfTheAPIAreNotTrusted checks that a Pod of the API is never static, and that one with the mirror annotation
// is neither run nor taken
// for the mirror of a static Pod, unless the node has created it.
func TestAnnotationsOfTheAPIAreNotTrusted(t *testing.T) {
	c := proatest.Start(t, proatest.Memory(), proatest.Alone())
	o, err := c.Client.Create(t.Context(), gr.Nodes, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}})
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	podsource.WriteFile(t, filepath.Join(dir, "a.yaml"), podsource.Manifest("a", "i1"))
	nodeRef := metav1.OwnerReference{APIVersion: "v1", Kind: "Node", Name: "n", UID: o.GetUID(), Controller: new(true)}
	pod := func(name string, annotations map[string]string, owners ...metav1.OwnerReference) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "kube-system", Annotations: annotations,
			OwnerReferences: owners}, Spec: corev1.PodSpec{
			NodeName: "n", Containers: []corev1.Container{{Name: "c", Image: "x"}}, AutomountServiceAccountToken: new(false),
		}}
	}
	mirror := func(hash string) map[string]string { return map[string]string{corev1.MirrorPodAnnotationKey: hash} }
	// A user has created Pods with the mirror annotation before the node: with the name of its static Pod, and with others.
	for _, p := range []*corev1.Pod{pod("a-n", mirror("x")), pod("orphan", mirror("alive")), pod("empty", mirror(""))} {
		if _, err := c.Client.Create(t.Context(), gr.Pods, p); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := c.Client.Create(t.Context(), gr.Pods, pod("owned", mirror("x"), nodeRef)); !apierrors.IsForbidden(err) {
		t.Errorf("a mirror with the node as its owner: %v", err)
	}
	s := podsource.New(podsource.Config{
		Node: "n", UID: o.GetUID, Folder: dir, IsRunning: func(uid types.UID) bool { return uid == "alive" },
		Log:    podsource.DiscardLogger(),
		Client: c.Server.Client(&user.DefaultInfo{Name: "system:node:n", Groups: []string{"system:nodes", "system:authenticated"}}),
	})
	u := podsource.OpenStream(t, s)
	for mirrored, complete := false, false; !mirrored || !complete; { // in any order; mirrored is true once the node has created the mirror
		x, ok := u.Next()
		if !ok {
			t.Fatal("the stream has ended")
		}
		if x.Pod != nil && x.Pod.Name != "a-n" {
			t.Fatalf("a mirror Pod is received as a Pod to run: %s", x.Pod.Name)
		}
		complete = complete || x.Complete
		mirrored = mirrored || x.Pod != nil && x.Pod.ResourceVersion != ""
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
	known := []string{"a-n"}
	for _, annotations := range []map[string]string{{"kubernetes.io/config.source": "file"},
		{"kubernetes.io/config.source": "http", "kubernetes.io/config.hash": "x", "kubernetes.io/config.seen": "now"}} {
		name := "says-" + annotations["kubernetes.io/config.source"]
		if _, err := c.Client.Create(t.Context(), gr.Pods, pod(name, annotations)); err != nil {
			t.Fatal(err)
		}
		x, ok := u.Next()
		for ok && x.Pod != nil && slices.Contains(known, x.Pod.Name) { // others write these Pods too, so updates may repeat
			x, ok = u.Next()
		}
		known = append(known, name)
		if !ok || x.Pod == nil || x.Pod.Name != name || fact.Static(x.Pod) || fact.Critical(x.Pod) {
			t.Errorf("%v: static %v, critical %v", annotations, x.Pod != nil && fact.Static(x.Pod), x.Pod != nil && fact.Critical(x.Pod))
		}
	}
	c.Stop()
}

func eventually(t *testing.T, is func() bool) {
	t.Helper()
	for range 3000 {
		if is() {
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
	t.Fatal("not within a minute")
}
