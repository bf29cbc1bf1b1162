package source_test

import (
	"context"
	"iter"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/authentication/user"

	"proa.dev/kinds/gr"
	"proa.dev/node/source"
	"proa.dev/proatest"
)

const web = `
apiVersion: v1
kind: Pod
metadata: {name: web, namespace: kube-system, labels: {a: b}}
spec:
  containers:
  - {name: c, image: nginx}
`

func manifest(name, image string) string {
	return strings.NewReplacer("name: web", "name: "+name, "nginx", image).Replace(web)
}

func put(t *testing.T, file, text string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// stream reads updates one by one.
type stream struct {
	t    *testing.T
	next func() (source.Update, bool)
	last string
}

func open(t *testing.T, s *source.Source) *stream {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	next, stop := iter.Pull(s.Updates(ctx))
	t.Cleanup(func() { cancel(); stop() })
	return &stream{t: t, next: next}
}

func (s *stream) want(words ...string) {
	s.t.Helper()
	for _, want := range words {
		got, ok := s.last, true
		for got == s.last && ok { // others write the Pods of the API too
			var u source.Update
			u, ok = s.next()
			got = "complete"
			if u.Pod != nil {
				got = "+" + u.Pod.Name + " " + u.Pod.Spec.Containers[0].Image
			}
			if u.Gone {
				got = "-" + got[1:]
			}
		}
		s.last = got
		if !ok || got != want {
			s.t.Fatalf("got %q %v, want %q", got, ok, want)
		}
	}
}

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

// TestAPI takes Pods and mirrors through a real cluster, under the identity of the node.
func TestAPI(t *testing.T) {
	c := proatest.Start(t, proatest.Memory(), proatest.Alone())
	o, err := c.Client.Create(t.Context(), gr.Nodes, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}})
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	put(t, filepath.Join(dir, "a.yaml"), manifest("a", "i1"))
	var lives atomic.Bool
	lives.Store(true)
	s := source.New(source.Config{
		Node: "n", UID: o.GetUID, Folder: dir, Lives: func(types.UID) bool { return lives.Load() }, Log: quiet(),
		Client: c.Server.Client(&user.DefaultInfo{Name: "system:node:n", Groups: []string{"system:nodes", "system:authenticated"}}),
	})
	u := open(t, s)
	pod := func(name, node string) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "kube-system"}, Spec: corev1.PodSpec{
			NodeName: node, Containers: []corev1.Container{{Name: "c", Image: "x"}}, AutomountServiceAccountToken: new(false),
		}}
	}
	var seen []string
	for range 3 { // the static Pod, all of the API, and the mirror, in any order
		x, ok := u.next()
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
		return len(refs) == 1 && refs[0].UID == o.GetUID() && m.GetAnnotations()[corev1.MirrorPodAnnotationKey] == m.GetAnnotations()["kubernetes.io/config.hash"]
	})
	// Pods of this node come, those of others do not.
	for _, p := range []*corev1.Pod{pod("other", "m"), pod("mine", "n")} {
		if _, err := c.Client.Create(t.Context(), gr.Pods, p); err != nil {
			t.Fatal(err)
		}
	}
	u.want("+mine x")
	zero := metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))}
	if err := c.Client.Delete(t.Context(), gr.Pods, "kube-system", "mine", zero); err != nil {
		t.Fatal(err)
	}
	u.want("-mine x")
	// A mirror that somebody deletes comes back.
	if err := c.Client.Delete(t.Context(), gr.Pods, "kube-system", "a-n", zero); err != nil {
		t.Fatal(err)
	}
	u.want("+a-n i1")
	// The mirror of a Pod that is no longer wanted stays until the Pod has ended.
	if err := os.Remove(filepath.Join(dir, "a.yaml")); err != nil {
		t.Fatal(err)
	}
	u.want("-a-n i1")
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
