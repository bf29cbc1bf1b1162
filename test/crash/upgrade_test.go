package crash

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// earlierCommit is the version from which the upgrade is tested: the one that wrote run/testdata/folder-4df27d8.tgz.
const earlierCommit = "4df27d8"

// earlierVersion returns the path of the earlier version. It is built when PROA_UPGRADE is set and it is not in the cache folder.
func earlierVersion(t *testing.T) string {
	t.Helper()
	cache := os.Getenv("PROA_CACHE")
	if cache == "" {
		home, err := os.UserHomeDir()
		if err != nil {
			t.Skip(err)
		}
		cache = filepath.Join(home, ".cache", "proa")
	}
	path := filepath.Join(cache, "bin", "proa-"+earlierCommit, "proa")
	if _, err := os.Stat(path); err == nil {
		return path
	}
	if os.Getenv("PROA_UPGRADE") == "" {
		t.Skipf("%s is not there; \"make upgrade\" builds it, which takes some minutes", path)
	}
	source := t.TempDir()
	archive, err := exec.Command("git", "archive", earlierCommit).Output()
	if err != nil {
		t.Skipf("this clone has no commit %s: %v", earlierCommit, err)
	}
	unpack := exec.Command("tar", "-x", "-C", source)
	unpack.Stdin = bytes.NewReader(archive)
	if out, err := unpack.CombinedOutput(); err != nil {
		t.Fatalf("unpack the earlier version: %v: %s", err, out)
	}
	build := exec.Command("go", "build", "-tags", "grpcnotrace", "-ldflags", "-s -w", "-o", path+".new", "./cmd/proa")
	build.Dir, build.Env = source, append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build the earlier version: %v: %s", err, out)
	}
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestUpgradeUnderLoad stops an earlier version while clients write, and starts this one on its folder: no acknowledged write is
// lost, no request fails but by the connection or with 503, and nodes are ready after the first start. Then the way back from a
// later version is tried: this one refuses the folder, and changes nothing.
func TestUpgradeUnderLoad(t *testing.T) {
	earlier := earlierVersion(t)
	c := newCluster(t)
	c.args = []string{"--simulate", "2"}
	c.program = earlier
	c.start()
	createNamespace(c)
	acknowledged, stop := writeUntilStopped(c)
	acknowledged.wait(t, 50)
	if err := c.process.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	_ = c.process.Wait()
	c.process, c.program = nil, ""
	before := acknowledged.count()
	c.start()
	acknowledged.wait(t, before+50)
	stop()
	client := c.client()
	defer client.CloseIdleConnections()
	_, body, err := c.exchange(client, http.MethodGet, collection, nil)
	if err != nil {
		t.Fatal(err)
	}
	var list struct{ Items []configMap }
	if err := json.Unmarshal(body, &list); err != nil {
		t.Fatal(err)
	}
	have := map[string]bool{}
	for _, m := range list.Items {
		have[m.Metadata.Name] = true
	}
	for _, name := range acknowledged.names {
		if !have[name] {
			t.Errorf("%s was acknowledged and is lost", name)
		}
	}
	t.Logf("%d writes acknowledged, %d of them by the earlier version; this one was ready after %v", len(acknowledged.names), before,
		c.starts[len(c.starts)-1])
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, c.base+"/api/v1/namespaces/kube-system", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Impersonate-User", "system:node:sim-0")
	req.Header.Set("Impersonate-Group", "system:nodes")
	res, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	_ = res.Body.Close()
	if res.StatusCode != http.StatusOK {
		t.Errorf("a node that reads the namespace which numbers the tunnels: %s", res.Status)
	}
	c.kill()
	mark := filepath.Join(c.dir, "version")
	if err := os.WriteFile(mark, []byte(`{"format":99,"build":"v9.9.9"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	files := modified(t, c.dir)
	if output := c.refused(); !strings.Contains(output, "was written by a newer proa (build v9.9.9, data format 99)") {
		t.Errorf("on the folder of a later version:\n%s", output)
	}
	if after := modified(t, c.dir); after != files {
		t.Errorf("a server that refuses the folder has changed it:\n%s\n%s", files, after)
	}
}

// modified returns the names, sizes and times of change of all files of a folder.
func modified(t *testing.T, dir string) string {
	t.Helper()
	var out strings.Builder
	if err := filepath.Walk(dir, func(path string, info os.FileInfo, err error) error {
		if err == nil {
			fmt.Fprintln(&out, path, info.Size(), info.ModTime())
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

// acknowledgedWrites are the names of the objects whose creation was acknowledged.
type acknowledgedWrites struct {
	mu    sync.Mutex
	names []string
	more  chan struct{} // has an element when there is a new name
}

func (w *acknowledgedWrites) count() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.names)
}

// wait waits until so many writes were acknowledged.
func (w *acknowledgedWrites) wait(t *testing.T, n int) {
	t.Helper()
	late := time.After(time.Minute)
	for w.count() < n {
		select {
		case <-w.more:
		case <-late:
			t.Fatalf("%d writes were acknowledged in a minute, want %d", w.count(), n)
		}
	}
}

// writeUntilStopped creates ConfigMaps one after the other, with four clients.
func writeUntilStopped(c *cluster) (*acknowledgedWrites, func()) {
	w := &acknowledgedWrites{more: make(chan struct{}, 1)}
	ctx, cancel := context.WithCancel(c.Context())
	var wg sync.WaitGroup
	for worker := range 4 {
		wg.Go(func() {
			client := c.client()
			defer client.CloseIdleConnections()
			for n := 0; ctx.Err() == nil; n++ {
				name := fmt.Sprintf("w%d-%d", worker, n)
				code, text, err := c.exchange(client, http.MethodPost, collection,
					[]byte(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"`+name+`"},"data":{"v":"1"}}`))
				switch {
				case err == nil && code == http.StatusCreated:
					w.mu.Lock()
					w.names = append(w.names, name)
					w.mu.Unlock()
					select {
					case w.more <- struct{}{}:
					default:
					}
				case err == nil && code != http.StatusServiceUnavailable:
					c.Errorf("create %s: %d %.300s", name, code, text)
				default:
					time.Sleep(10 * time.Millisecond) // another process can only be polled
				}
			}
		})
	}
	return w, func() { cancel(); wg.Wait() }
}
