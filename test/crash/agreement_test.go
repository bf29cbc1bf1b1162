package crash

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// TestServersOfOneEtcdAgree starts servers on the etcd of another one with other keys, other settings, or an earlier data format
// than it has: each ends with a sentence that names what differs, and leaves the etcd and its own folder as they are. Secrets of a
// cluster that begins in an etcd are encrypted, also with a new key.
func TestServersOfOneEtcdAgree(t *testing.T) {
	etcd := startEtcd(t, 1)
	a := newCluster(t)
	a.args = []string{"--etcd-servers", etcd.urls()}
	a.start()
	secrets := connect(t, a).Resource(schema.GroupVersionResource{Version: "v1", Resource: "secrets"}).Namespace("default")
	if _, err := secrets.Create(t.Context(), &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "Secret", "metadata": map[string]any{"name": "s"}, "stringData": map[string]any{"word": "swordfish"},
	}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	const key = "/registry/secrets/default/s"
	first := etcd.value(key)
	if !bytes.HasPrefix(first, []byte("k8s:enc:")) || bytes.Contains(first, []byte("swordfish")) {
		t.Errorf("a Secret is stored as %q", first)
	}
	record := etcd.value("/registry/proa/cluster")
	copyKeys := func(to *cluster, without ...string) {
		if err := os.CopyFS(filepath.Join(to.dir, "pki"), os.DirFS(filepath.Join(a.dir, "pki"))); err != nil {
			t.Fatal(err)
		}
		for _, name := range without {
			if err := os.Remove(filepath.Join(to.dir, "pki", name)); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, c := range []struct {
		name    string
		prepare func(*cluster)
		want    []string
	}{
		{"no keys", func(*cluster) {}, []string{"certificate-authority: the cluster has ", "this server has none", "copy it, with keys"}},
		{"no key of Secrets", func(b *cluster) { copyKeys(b, "secrets.key") }, []string{"secrets-key: the cluster has ", "this server has none"}},
		{"another Service CIDR and domain", func(b *cluster) {
			copyKeys(b)
			b.args = append(b.args, "--service-cidr", "10.99.0.0/16", "--cluster-domain", "other.local")
		}, []string{"service-cidr: the cluster has 10.96.0.0/16, this server has 10.99.0.0/16",
			"cluster-domain: the cluster has cluster.local, this server has other.local"}},
	} {
		b := newCluster(t)
		b.args = a.args
		c.prepare(b)
		before := fileNames(t, b.dir)
		output := b.refused()
		for _, want := range append(c.want, "has changed nothing") {
			if !strings.Contains(output, want) {
				t.Errorf("%s: the server does not say %q:\n%s", c.name, want, output)
			}
		}
		if after := fileNames(t, b.dir); after != before+"version\n" {
			t.Errorf("%s: the folder had\n%s\nand has\n%s", c.name, before, after)
		}
	}
	if !bytes.Equal(etcd.value("/registry/proa/cluster"), record) {
		t.Error("a refused server has changed the record")
	}
	b := newCluster(t)
	copyKeys(b)
	b.args = a.args
	b.start()
	b.kill()
	a.kill()
	_, rest, _ := strings.Cut(a.rotateKey(), "Made the key ")
	name, _, _ := strings.Cut(rest, ",")
	a.start() // it reads with the new key, and could be one of several
	a.kill()
	a.rotateKey("--use", name)
	a.start()
	if got, err := connect(t, a).Resource(schema.GroupVersionResource{Version: "v1", Resource: "secrets"}).Namespace("default").Get(
		t.Context(), "s", metav1.GetOptions{}); err != nil || got.Object["data"].(map[string]any)["word"] != "c3dvcmRmaXNo" {
		t.Errorf("with a new key: %v %v", got, err)
	}
	for end := time.Now().Add(time.Minute); !bytes.Contains(etcd.value(key), []byte(name)); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("the Secret is not written again with %s: %q", name, etcd.value(key)[:60])
		}
	}
	a.kill()
	etcd.put("/registry/proa/cluster", []byte(`{"format":99,"build":"v9.9.9","keys":{},"settings":{}}`))
	if output := a.refused(); !strings.Contains(output, "was written by a newer proa (build v9.9.9, data format 99)") {
		t.Errorf("after a newer version:\n%s", output)
	}
}

// rotateKey runs "proa certs rotate-secrets" on the folder of a server that is stopped, and returns what it prints.
func (c *cluster) rotateKey(args ...string) string {
	c.Helper()
	out, err := exec.Command(binary, append([]string{"certs", "rotate-secrets", "--data-dir", c.dir}, args...)...).CombinedOutput()
	if err != nil {
		c.Fatalf("%v: %s", err, out)
	}
	return string(out)
}

// refused starts a server that has to end by itself with an error, and returns what it printed.
func (c *cluster) refused() string {
	c.Helper()
	ctx, stop := context.WithTimeout(c.Context(), time.Minute)
	defer stop()
	args := append([]string{"server", "--data-dir", c.dir, "--listen", c.addr}, c.args...)
	out, err := exec.CommandContext(ctx, binary, args...).CombinedOutput()
	if err == nil || ctx.Err() != nil {
		c.Errorf("the server has started, or does not end: %v", err)
	}
	return string(out)
}

// fileNames returns the names of the files of a folder and of its folder pki.
func fileNames(t *testing.T, dir string) string {
	t.Helper()
	var out strings.Builder
	for _, pattern := range []string{"pki/*", "*"} {
		names, err := filepath.Glob(filepath.Join(dir, pattern))
		if err != nil {
			t.Fatal(err)
		}
		for _, n := range names {
			out.WriteString(strings.TrimPrefix(n, dir+"/") + "\n")
		}
	}
	return out.String()
}

// value returns the value of a key.
func (e *etcdCluster) value(key string) []byte {
	e.Helper()
	var answer struct {
		KVs []struct{ Value []byte } `json:"kvs"`
	}
	e.call("range", map[string]string{"key": base64.StdEncoding.EncodeToString([]byte(key))}, &answer)
	if len(answer.KVs) == 0 {
		return nil
	}
	return answer.KVs[0].Value
}

func (e *etcdCluster) put(key string, value []byte) {
	e.Helper()
	e.call("put", map[string]string{"key": base64.StdEncoding.EncodeToString([]byte(key)),
		"value": base64.StdEncoding.EncodeToString(value)}, &struct{}{})
}

// call makes a request to the JSON form of etcd's API.
func (e *etcdCluster) call(method string, request, answer any) {
	e.Helper()
	body, err := json.Marshal(request)
	if err != nil {
		e.Fatal(err)
	}
	req, err := http.NewRequestWithContext(e.Context(), http.MethodPost, e.members[0].url+"/v3/kv/"+method, bytes.NewReader(body))
	if err != nil {
		e.Fatal(err)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		e.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	if err := json.NewDecoder(res.Body).Decode(answer); err != nil {
		e.Fatal(err)
	}
}
