package source

import (
	"context"
	"fmt"
	"iter"
	"log/slog"
	"net/http"
	"net/http/httptest"
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

	"proa.dev/kinds/core"
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

func at(source string) origin {
	return origin{node: "node1", source: source, at: "/x", def: core.Pods(), now: time.Unix(0, 0)}
}

func TestManifest(t *testing.T) {
	pods, err := decode([]byte(web), at(FromFile))
	if err != nil {
		t.Fatal(err)
	}
	p := pods[0]
	if p.Name != "web-node1" || p.Namespace != "kube-system" || p.Spec.NodeName != "node1" || p.Status.Phase != corev1.PodPending || p.Spec.RestartPolicy != corev1.RestartPolicyAlways {
		t.Errorf("%+v", p)
	}
	if len(p.UID) != 32 || p.Annotations[hashAnnotation] != string(p.UID) || p.Annotations[sourceAnnotation] != "file" || p.Annotations[seenAnnotation] == "" {
		t.Errorf("%s %v", p.UID, p.Annotations)
	}
	if len(p.Spec.Tolerations) != 1 || p.Spec.Tolerations[0].Effect != corev1.TaintEffectNoExecute {
		t.Errorf("tolerations %v", p.Spec.Tolerations)
	}
	same, err := decode([]byte("# a comment\n"+web), at(FromFile))
	if err != nil || same[0].UID != p.UID {
		t.Errorf("the same content is another Pod: %v", err)
	}
	other, err := decode([]byte(manifest("web", "other")), at(FromFile))
	if err != nil || other[0].UID == p.UID {
		t.Errorf("another content is the same Pod: %v", err)
	}
	many, err := decode([]byte(`{"apiVersion":"v1","kind":"PodList","items":[{"metadata":{"name":"a"},"spec":{"containers":[{"name":"c","image":"i"}]}},{"metadata":{"name":"b"},"spec":{"containers":[{"name":"c","image":"i"}]}}]}`), at(FromURL))
	if err != nil || len(many) != 2 || many[1].Name != "b-node1" || many[1].Namespace != "default" || len(many[1].Spec.Tolerations) != 0 {
		t.Errorf("%v %v", many, err)
	}
}

func TestWrongManifests(t *testing.T) {
	for text, want := range map[string]string{
		"": "couldn't parse as pod", "]": "couldn't parse as pod", "a: b": "couldn't parse as pod", "apiVersion: v1\nkind: Service": "couldn't parse as pod",
		"apiVersion: v1\nkind: Pod":                                             "invalid pod: name is needed for the pod",
		"apiVersion: v1\nkind: Pod\nmetadata: {name: a}":                        "invalid pod: spec.containers: Required value",
		manifest("UPPER", "i"):                                                  "invalid pod: metadata.name: Invalid value",
		web + "  serviceAccountName: x\n":                                       "static pods may not reference serviceaccounts",
		web + "  imagePullSecrets: [{name: x}]\n":                               "static pods may not reference secrets",
		web + "  volumes: [{name: v, secret: {secretName: s}}]\n":               "static pods may not reference secrets (via secret volumes)",
		web + "  volumes: [{name: v, configMap: {name: s}}]\n":                  "static pods may not reference configmaps (via configmap volumes)",
		web + "  volumes: [{name: v, persistentVolumeClaim: {claimName: s}}]\n": "static pods may not reference persistentvolumeclaims",
	} {
		if _, err := decode([]byte(text), at(FromFile)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s\ngot  %v\nwant %s", text, err, want)
		}
	}
}

func FuzzManifest(f *testing.F) {
	f.Add([]byte(web))
	f.Add([]byte("a: &a [*a]"))
	f.Fuzz(func(t *testing.T, text []byte) {
		pods, err := decode(text, at(FromURL))
		for _, p := range pods {
			if err != nil || p.UID == "" || p.Namespace == "" || p.Spec.NodeName != "node1" {
				t.Errorf("%v %+v", err, p)
			}
		}
	})
}

// stream reads updates one by one.
type stream struct {
	t    *testing.T
	next func() (Update, bool)
	last string
}

func open(t *testing.T, s *Source) *stream {
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
			var u Update
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

func TestFolder(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "static")
	s := New(Config{Node: "n", Folder: dir, FolderEvery: 300 * time.Millisecond, Log: quiet()})
	u := open(t, s)
	u.want("complete") // a folder that is not there has no Pods
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	put(t, filepath.Join(dir, ".hidden.yaml"), manifest("hidden", "i"))
	put(t, filepath.Join(dir, "a.yaml"), manifest("a", "i1"))
	u.want("+a-n i1")
	put(t, filepath.Join(dir, "a.yaml"), manifest("a", "i2"))
	u.want("-a-n i1", "+a-n i2")
	// A manifest that became wrong ends nothing, and does not keep others away.
	put(t, filepath.Join(dir, "a.yaml"), "rubbish: [")
	put(t, filepath.Join(dir, "b.yaml"), manifest("b", "i"))
	u.want("+b-n i")
	// Two of the same name: the first counts.
	put(t, filepath.Join(dir, "c.yaml"), manifest("b", "other"))
	put(t, filepath.Join(dir, "d.yaml"), manifest("d", "i"))
	u.want("+d-n i")
	if err := os.Rename(filepath.Join(dir, "d.yaml"), filepath.Join(dir, ".d")); err != nil {
		t.Fatal(err)
	}
	u.want("-d-n i")
	if err := os.Remove(filepath.Join(dir, "a.yaml")); err != nil {
		t.Fatal(err)
	}
	u.want("-a-n i2")
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	u.want("-b-n i")
}

func TestURL(t *testing.T) {
	var text atomic.Value
	text.Store(manifest("a", "i1"))
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch answer := text.Load().(string); {
		case r.Header.Get("X-Key") != "k":
			http.Error(w, "who are you", http.StatusUnauthorized)
		case answer == "500":
			http.Error(w, "no", http.StatusInternalServerError)
		default:
			fmt.Fprint(w, answer)
		}
	}))
	defer server.Close()
	s := New(Config{Node: "n", URL: server.URL, Header: http.Header{"X-Key": {"k"}}, URLEvery: 10 * time.Millisecond, Log: quiet()})
	u := open(t, s)
	u.want("+a-n i1", "complete")
	text.Store("500")
	time.Sleep(50 * time.Millisecond)
	text.Store(manifest("a", "i2"))
	u.want("-a-n i1", "+a-n i2")
	text.Store("")
	u.want("-a-n i2")
}

func TestPlan(t *testing.T) {
	static := func(name, hash string) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(hash), Annotations: map[string]string{hashAnnotation: hash}}}
	}
	mirror := func(name, hash string) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{corev1.MirrorPodAnnotationKey: hash}}}
	}
	deleted := mirror("deleted", "1")
	deleted.DeletionTimestamp = new(metav1.Now())
	mirrors := map[name]*corev1.Pod{}
	for _, m := range []*corev1.Pod{mirror("same", "1"), mirror("old", "1"), mirror("orphan", "1"), mirror("ending", "alive"), deleted} {
		mirrors[nameOf(m)] = m
	}
	var got []string
	for _, s := range plan([]*corev1.Pod{static("deleted", "1"), static("new", "1"), static("old", "2"), static("same", "1"), static("same", "2")}, mirrors, func(uid types.UID) bool { return uid == "alive" }) {
		if s.create != nil {
			got = append(got, "create "+s.create.Name)
		} else {
			got = append(got, "remove "+s.remove.Name)
		}
	}
	want := []string{"remove deleted", "create deleted", "create new", "remove old", "create old", "remove orphan"}
	if !slices.Equal(got, want) {
		t.Errorf("got %v\nwant %v", got, want)
	}
}
