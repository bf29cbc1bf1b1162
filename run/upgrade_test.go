package run_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"proa.dev/kinds/lib/gr"
	"proa.dev/proatest"
)

// unpackFolder unpacks the store and the key of Secrets of a data folder. Runs of zeros, of which the files of a store mostly
// consist, are not written.
func unpackFolder(t *testing.T, archive string) (dir string) {
	t.Helper()
	dir = t.TempDir()
	f, err := os.Open(archive)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	unzipped, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	files := tar.NewReader(unzipped)
	for {
		h, err := files.Next()
		if errors.Is(err, io.EOF) {
			return dir
		}
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(dir, h.Name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if h.Typeflag == tar.TypeReg {
			writeSparse(t, path, files, h.Size)
		}
	}
}

func writeSparse(t *testing.T, path string, from io.Reader, size int64) {
	t.Helper()
	out, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	if err := out.Truncate(size); err != nil {
		t.Fatal(err)
	}
	chunk, zero := make([]byte, 1<<16), make([]byte, 1<<16)
	for at := int64(0); ; {
		n, err := io.ReadFull(from, chunk)
		if !bytes.Equal(chunk[:n], zero[:n]) {
			if _, err := out.WriteAt(chunk[:n], at); err != nil {
				t.Fatal(err)
			}
		}
		at += int64(n)
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// TestFolderOfEarlierVersion starts this version on the store that the version of commit 4df27d8 has left: everything is there at
// the first start, Secrets can be read, a definition that was stored is served, which that version could not, and nodes may read
// what they need. The certificates are made anew.
func TestFolderOfEarlierVersion(t *testing.T) {
	c := proatest.Start(t, proatest.InDir(unpackFolder(t, "testdata/folder-4df27d8.tgz")), proatest.Simulate(1))
	o, err := c.Client.Get(t.Context(), gr.Secrets, "default", "word", "")
	if err != nil {
		t.Fatal(err)
	}
	if got := string(o.(*corev1.Secret).Data["word"]); got != "swordfish" {
		t.Errorf("the Secret has the word %q", got)
	}
	admin, node := newAdminClient(t, c), newNodeClient(t, c, "n")
	if code, answer := node.do("GET", "/api/v1/namespaces/kube-system", nil); code != http.StatusOK {
		t.Errorf("the namespace whose UID names the cluster, read by a node: %d %s", code, answer)
	}
	for path, want := range map[string]string{
		"/apis/example.com/v1/namespaces/default/boats":               `"kind":"BoatList"`,
		"/apis/apps/v1/namespaces/default/deployments":                `"name":"web"`,
		"/api/v1/namespaces/default/services":                         `"name":"web"`,
		"/api/v1/namespaces/default/configmaps":                       `"name":"settings"`,
		"/api/v1/nodes":                                               `"name":"sim-`,
		"/api/v1/namespaces/default/pods?labelSelector=app%3Dweb":     `"name":"web-`,
		"/apis/apiextensions.k8s.io/v1/customresourcedefinitions":     `"boats.example.com"`,
		"/apis/rbac.authorization.k8s.io/v1/clusterroles/proa:leader": `"proa:leader"`,
	} {
		code, answer := admin.do("GET", path, nil)
		for word := range strings.FieldsSeq(want) {
			if code != http.StatusOK || !strings.Contains(answer, word) {
				t.Errorf("%s: %d without %s: %.600s", path, code, word, answer)
			}
		}
	}
}
