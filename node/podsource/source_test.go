package podsource

import (
	"fmt"
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

	"proa.dev/kinds/core/podkind"
	"proa.dev/node/fact"
)

func originOf(source string) origin {
	return origin{node: "node1", source: source, at: "/x", def: podkind.Pods(), now: time.Unix(0, 0)}
}

func TestManifest(t *testing.T) {
	pods, err := decode([]byte(Web), originOf(FromFile))
	if err != nil {
		t.Fatal(err)
	}
	p := pods[0]
	if p.Name != "web-node1" || p.Namespace != "kube-system" || p.Spec.NodeName != "node1" || p.Status.Phase != corev1.PodPending ||
		p.Spec.RestartPolicy != corev1.RestartPolicyAlways {
		t.Errorf("%+v", p)
	}
	if len(p.UID) != 32 || p.Annotations[hashAnnotation] != string(p.UID) || p.Annotations[sourceAnnotation] != "file" ||
		p.Annotations[seenAnnotation] == "" {
		t.Errorf("%s %v", p.UID, p.Annotations)
	}
	if len(p.Spec.Tolerations) != 1 || p.Spec.Tolerations[0].Effect != corev1.TaintEffectNoExecute {
		t.Errorf("tolerations %v", p.Spec.Tolerations)
	}
	same, err := decode([]byte("# a comment\n"+Web), originOf(FromFile))
	if err != nil || same[0].UID != p.UID {
		t.Errorf("the same content has another UID: %v", err)
	}
	other, err := decode([]byte(Manifest("web", "other")), originOf(FromFile))
	if err != nil || other[0].UID == p.UID {
		t.Errorf("another content has the same UID: %v", err)
	}
	dated, err := decode([]byte(strings.Replace(Web, "metadata: {", "metadata: {creationTimestamp: \"2026-01-01T00:00:00Z\", ", 1)),
		originOf(FromFile))
	if err != nil || !dated[0].CreationTimestamp.IsZero() || !fact.Static(dated[0]) {
		t.Errorf("a manifest with a creation timestamp is no static Pod: %v", err)
	}
	many, err := decode([]byte(`{"apiVersion":"v1","kind":"PodList","items":[{"metadata":{"name":"a"},"spec":{"containers":[{"name":"c","image":"i"}]}},{"metadata":{"name":"b"},"spec":{"containers":[{"name":"c","image":"i"}]}}]}`), originOf(FromURL))
	if err != nil || len(many) != 2 || many[1].Name != "b-node1" || many[1].Namespace != "default" || len(many[1].Spec.Tolerations) != 0 {
		t.Errorf("%v %v", many, err)
	}
}

func TestInvalidManifests(t *testing.T) {
	for text, want := range map[string]string{
		"": "couldn't parse as pod", "]": "couldn't parse as pod", "a: b": "couldn't parse as pod",
		"apiVersion: v1\nkind: Service":                                         "couldn't parse as pod",
		"apiVersion: v1\nkind: Pod":                                             "invalid pod: name is needed for the pod",
		"apiVersion: v1\nkind: Pod\nmetadata: {name: a}":                        "invalid pod: spec.containers: Required value",
		Manifest("UPPER", "i"):                                                  "invalid pod: metadata.name: Invalid value",
		Web + "  serviceAccountName: x\n":                                       "static pods may not reference serviceaccounts",
		Web + "  imagePullSecrets: [{name: x}]\n":                               "static pods may not reference secrets",
		Web + "  volumes: [{name: v, secret: {secretName: s}}]\n":               "static pods may not reference secrets (via secret volumes)",
		Web + "  volumes: [{name: v, configMap: {name: s}}]\n":                  "static pods may not reference configmaps (via configmap volumes)",
		Web + "  volumes: [{name: v, persistentVolumeClaim: {claimName: s}}]\n": "static pods may not reference persistentvolumeclaims",
	} {
		if _, err := decode([]byte(text), originOf(FromFile)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s\ngot  %v\nwant %s", text, err, want)
		}
	}
}

func FuzzManifest(f *testing.F) {
	f.Add([]byte(Web))
	f.Add([]byte("a: &a [*a]"))
	f.Fuzz(func(t *testing.T, text []byte) {
		pods, err := decode(text, originOf(FromURL))
		for _, p := range pods {
			if err != nil || p.UID == "" || p.Namespace == "" || p.Spec.NodeName != "node1" {
				t.Errorf("%v %+v", err, p)
			}
		}
	})
}

func TestFolder(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "static")
	s := New(Config{Node: "n", Folder: dir, FolderEvery: 300 * time.Millisecond, Log: DiscardLogger()})
	u := OpenStream(t, s)
	u.Want("complete") // a folder that does not exist has no Pods
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	WriteFile(t, filepath.Join(dir, ".hidden.yaml"), Manifest("hidden", "i"))
	WriteFile(t, filepath.Join(dir, "a.yaml"), Manifest("a", "i1"))
	u.Want("+a-n i1")
	WriteFile(t, filepath.Join(dir, "a.yaml"), Manifest("a", "i2"))
	u.Want("-a-n i1", "+a-n i2")
	// A manifest that becomes invalid removes no Pod, and does not affect others.
	WriteFile(t, filepath.Join(dir, "a.yaml"), "invalid: [")
	WriteFile(t, filepath.Join(dir, "b.yaml"), Manifest("b", "i"))
	u.Want("+b-n i")
	// Of two Pods with the same name the first is used.
	WriteFile(t, filepath.Join(dir, "c.yaml"), Manifest("b", "other"))
	WriteFile(t, filepath.Join(dir, "d.yaml"), Manifest("d", "i"))
	u.Want("+d-n i")
	if err := os.Rename(filepath.Join(dir, "d.yaml"), filepath.Join(dir, ".d")); err != nil {
		t.Fatal(err)
	}
	u.Want("-d-n i")
	if err := os.Remove(filepath.Join(dir, "a.yaml")); err != nil {
		t.Fatal(err)
	}
	u.Want("-a-n i2")
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	u.Want("-b-n i")
}

func TestURL(t *testing.T) {
	var text atomic.Value
	text.Store(Manifest("a", "i1"))
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch answer := text.Load().(string); {
		case r.Header.Get("X-Key") != "k":
			http.Error(w, "unauthorized", http.StatusUnauthorized)
		case answer == "500":
			http.Error(w, "no", http.StatusInternalServerError)
		default:
			fmt.Fprint(w, answer)
		}
	}))
	defer server.Close()
	s := New(Config{Node: "n", URL: server.URL, Header: http.Header{"X-Key": {"k"}}, URLEvery: 10 * time.Millisecond, Log: DiscardLogger()})
	u := OpenStream(t, s)
	u.Want("+a-n i1", "complete")
	text.Store("500")
	time.Sleep(50 * time.Millisecond)
	text.Store(Manifest("a", "i2"))
	u.Want("-a-n i1", "+a-n i2")
	text.Store("")
	u.Want("-a-n i2")
}

// TestURLRedirectsAreNotFollowed checks that manifests are read only from the configured URL, and that errors do not contain its key.
func TestURLRedirectsAreNotFollowed(t *testing.T) {
	var followed atomic.Bool
	mux := http.NewServeMux()
	mux.Handle("/pods", http.RedirectHandler("/elsewhere", http.StatusTemporaryRedirect))
	mux.HandleFunc("/elsewhere", func(w http.ResponseWriter, _ *http.Request) {
		followed.Store(true)
		fmt.Fprint(w, Manifest("redirected", "i1"))
	})
	server := httptest.NewServer(mux)
	defer server.Close()
	s := New(Config{Node: "n", URL: server.URL + "/pods?key=k", Log: DiscardLogger()})
	text, err := s.fetch(t.Context(), newHTTPClient())
	if err == nil || !strings.Contains(err.Error(), "307 Temporary Redirect; redirects are not followed") || followed.Load() {
		t.Errorf("%s (%v)", text, err)
	}
	server.Close()
	if _, err := s.fetch(t.Context(), newHTTPClient()); err == nil || strings.Contains(err.Error(), "key=k") {
		t.Errorf("no server: %v", err)
	}
	if got := redactedURL("https://a:b@host/pods?key=k#x"); got != "https://a:xxxxx@host/pods" {
		t.Error(got)
	}
}

func TestPlan(t *testing.T) {
	static := func(name, hash string) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(hash),
			Annotations: map[string]string{hashAnnotation: hash}}}
	}
	mirror := func(name, hash string) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{corev1.MirrorPodAnnotationKey: hash}}}
	}
	// Users may set the annotation; a Pod with it counts as a mirror only if the node owns it.
	ownedByNode := func(m *corev1.Pod) bool { return m.Labels["by"] != "user" }
	forged := func(name, hash string) *corev1.Pod {
		m := mirror(name, hash)
		m.Labels = map[string]string{"by": "user"}
		return m
	}
	deleted := mirror("deleted", "1")
	deleted.DeletionTimestamp = new(metav1.Now())
	mirrors := map[name]*corev1.Pod{}
	for _, m := range []*corev1.Pod{mirror("same", "1"), mirror("old", "1"), mirror("orphan", "1"), mirror("ending", "alive"), deleted,
		forged("forged", "1"), forged("stays", "alive")} {
		mirrors[nameOf(m)] = m
	}
	var got []string
	for _, s := range plan([]*corev1.Pod{static("deleted", "1"), static("new", "1"), static("old", "2"), static("same", "1"),
		static("same", "2"), static("forged", "1")}, mirrors, ownedByNode, func(uid types.UID) bool { return uid == "alive" }) {
		if s.create != nil {
			got = append(got, "create "+s.create.Name)
		} else {
			got = append(got, "remove "+s.remove.Name)
		}
	}
	want := []string{"remove deleted", "create deleted", "create new", "remove old", "create old", "remove forged", "create forged",
		"remove orphan", "remove stays"}
	if !slices.Equal(got, want) {
		t.Errorf("got %v\nwant %v", got, want)
	}
}
