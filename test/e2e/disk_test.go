package e2e

import (
	"bytes"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"proa.dev/test/ports"
)

// onSmallDisk is set in the process of this test that has a small disk.
const onSmallDisk = "PROA_TEST_SMALL_DISK"

// TestFullDisk fills a file system of 200 MB with ConfigMaps: writes are rejected, /readyz and "proa status" report it, a restart
// with another address works, and after deletions writes are accepted again within seconds. The file system is mounted in another
// mount namespace, which needs root.
func TestFullDisk(t *testing.T) {
	if os.Getenv(onSmallDisk) != "" {
		testFullDisk(t)
		return
	}
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("a small disk can be mounted by root only")
	}
	// Only another process can have another mount namespace.
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestFullDisk$", "-test.v")
	cmd.Env = append(os.Environ(), onSmallDisk+"=1", "PROA_BIN="+build(t)["proa"])
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
	out, err := cmd.CombinedOutput()
	t.Logf("%s", out)
	if err != nil {
		t.Error(err)
	}
}

// smallDisk mounts a file system of 200 MB: ext4 in a file, or tmpfs if that is not possible.
func smallDisk(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	file, mount := filepath.Join(dir, "disk"), filepath.Join(dir, "mnt")
	if err := os.Mkdir(mount, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Unmount(mount, syscall.MNT_DETACH) })
	if exec.Command("truncate", "-s", "200M", file).Run() == nil && exec.Command("mkfs.ext4", "-q", "-F", file).Run() == nil &&
		exec.Command("mount", "-o", "loop", file, mount).Run() == nil {
		return mount
	}
	t.Log("there is no ext4 here; the disk is in memory")
	if err := syscall.Mount("tmpfs", mount, "tmpfs", 0, "size=200m"); err != nil {
		t.Skipf("no disk can be mounted here: %v", err)
	}
	return mount
}

// diskCluster is a cluster without nodes on a small disk.
type diskCluster struct {
	*testing.T
	proa, disk, data string
	config           *rest.Config
	client           *http.Client
}

// up starts the cluster and returns the output of the command.
func (c *diskCluster) up(port string) string {
	c.Helper()
	out, err := exec.CommandContext(c.Context(), c.proa, "up", "--no-node", "--no-merge", "--data-dir", c.data, "--listen",
		"127.0.0.1:"+port).CombinedOutput()
	if err != nil {
		log, _ := os.ReadFile(filepath.Join(c.data, "server.log"))
		c.Fatalf("up: %v\n%s\n%s", err, out, log)
	}
	if c.config, err = clientcmd.BuildConfigFromFlags("", filepath.Join(c.data, "admin.kubeconfig")); err != nil {
		c.Fatal(err)
	}
	var trust *tls.Config
	if trust, err = rest.TLSConfigFor(c.config); err != nil {
		c.Fatal(err)
	}
	c.client = &http.Client{Transport: &http.Transport{TLSClientConfig: trust}}
	return string(out)
}

// down stops the cluster.
func (c *diskCluster) down() {
	c.Helper()
	if out, err := exec.Command(c.proa, "down", "--data-dir", c.data).CombinedOutput(); err != nil {
		c.Errorf("down: %v\n%s", err, out)
	}
}

// send sends a request and returns the code and the body of the answer.
func (c *diskCluster) send(method, path, body string) (int, string) {
	c.Helper()
	req, err := http.NewRequestWithContext(c.Context(), method, c.config.Host+path, strings.NewReader(body))
	if err != nil {
		c.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := c.client.Do(req)
	if err != nil {
		c.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		c.Fatal(err)
	}
	return resp.StatusCode, string(text)
}

// create makes a ConfigMap of nearly a megabyte.
func (c *diskCluster) create(namespace, name string) (int, string) {
	c.Helper()
	return c.send("POST", "/api/v1/namespaces/"+namespace+"/configmaps",
		fmt.Sprintf(`{"metadata":{"name":%q},"data":{"a":%q}}`, name, strings.Repeat("x", 900_000)))
}

// fill creates ConfigMaps until that is rejected.
func (c *diskCluster) fill(namespace, prefix string) (names []string) {
	c.Helper()
	for n := range 1000 {
		name := fmt.Sprint(prefix, n)
		code, text := c.create(namespace, name)
		if code == http.StatusServiceUnavailable && strings.Contains(text, "the disk of the data folder is nearly full") {
			return names
		}
		if code != http.StatusCreated {
			c.Fatalf("create: %d %s", code, text)
		}
		names = append(names, name)
	}
	c.Fatal("the disk is never full")
	return nil
}

// free returns the bytes that are free on the disk.
func (c *diskCluster) free() int64 {
	c.Helper()
	var s syscall.Statfs_t
	if err := syscall.Statfs(c.disk, &s); err != nil {
		c.Fatal(err)
	}
	return int64(s.Bavail) * s.Bsize
}

// waitForWrites waits until a ConfigMap can be created, and returns how long that took.
func (c *diskCluster) waitForWrites(namespace, name string) time.Duration {
	c.Helper()
	for begin := time.Now(); ; time.Sleep(100 * time.Millisecond) {
		code, text := c.create(namespace, name)
		if code == http.StatusCreated {
			return time.Since(begin)
		}
		if code != http.StatusServiceUnavailable || time.Since(begin) > time.Minute {
			c.Fatalf("after %v: %d %s", time.Since(begin), code, text)
		}
	}
}

func testFullDisk(t *testing.T) {
	disk := smallDisk(t)
	c := &diskCluster{T: t, proa: os.Getenv("PROA_BIN"), disk: disk, data: filepath.Join(disk, "cluster")}
	free := ports.Strings(t, 2)
	begin := c.free()
	c.up(free[0])
	t.Cleanup(c.down)
	t.Logf("a new cluster takes %d of %d MB", (begin-c.free())/1e6, begin/1e6)
	if code, text := c.send("POST", "/api/v1/namespaces", `{"metadata":{"name":"big"}}`); code != http.StatusCreated {
		t.Fatal(text)
	}
	names := c.fill("big", "first-")
	// Acknowledged writes are moved to the database, and the write-ahead log is released.
	for end := time.Now().Add(waitLimit); c.free() < 56<<20 && time.Now().Before(end); {
		time.Sleep(100 * time.Millisecond)
	}
	t.Logf("%d ConfigMaps fit; %d MB are free", len(names), c.free()/1e6)
	if free := c.free(); free < 56<<20 {
		t.Errorf("of the 64 MiB that are kept %d are left", free>>20)
	}
	// A file takes more space than the write-ahead log can release: the disk stays full until something is deleted.
	if err := os.WriteFile(filepath.Join(disk, "other"), bytes.Repeat([]byte("y"), int(c.free()-44<<20)), 0o600); err != nil {
		t.Fatal(err)
	}
	c.checkReported()
	c.down()
	if out := c.up(free[1]); !strings.Contains(out, ":"+free[1]) || !strings.Contains(out, "Warning: check storage-space failed") {
		t.Errorf("a start with another address says\n%s", out)
	}
	c.checkReported()
	for _, name := range names[:len(names)/4] {
		if code, text := c.send("DELETE", "/api/v1/namespaces/big/configmaps/"+name, ""); code != http.StatusOK {
			t.Fatalf("delete: %d %s", code, text)
		}
	}
	took := c.waitForWrites("default", "after-some")
	t.Logf("after a quarter was deleted, writes are taken again after %v", took)
	c.fill("default", "second-")
	// The deletion of a namespace takes several writes.
	if code, text := c.send("DELETE", "/api/v1/namespaces/big", ""); code != http.StatusOK {
		t.Fatalf("delete: %d %s", code, text)
	}
	all := c.waitForWrites("default", "after-all")
	t.Logf("after the namespace was deleted, writes are taken again after %v; %d MB are free", all, c.free()/1e6)
	if took > 45*time.Second || all > 45*time.Second {
		t.Errorf("writes were taken again after %v and %v", took, all)
	}
	for end := time.Now().Add(waitLimit); ; time.Sleep(200 * time.Millisecond) { // the namespace is still being deleted
		out, err := exec.Command(c.proa, "status", "--data-dir", c.data).CombinedOutput()
		if err == nil && strings.Contains(string(out), "Everything is well.") {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("status: %v\n%s", err, out)
		}
	}
}

// checkReported checks that the cluster reports that its disk is full, and that a restart does not help.
func (c *diskCluster) checkReported() {
	c.Helper()
	if code, text := c.send("GET", "/readyz", ""); code != http.StatusInternalServerError ||
		!strings.Contains(text, "[-]storage-space failed:") || !strings.Contains(text, "64 MiB are kept") {
		c.Errorf("readyz answers %d %s", code, text)
	}
	if code, text := c.send("GET", "/livez", ""); code != http.StatusOK {
		c.Errorf("livez answers %d %s", code, text)
	}
	out, err := exec.Command(c.proa, "status", "--data-dir", c.data).CombinedOutput()
	if err == nil || !strings.Contains(string(out), "Problem: check storage-space: failed: ") ||
		!strings.Contains(string(out), "the disk of the data folder is nearly full") {
		c.Errorf("status: %v\n%s", err, out)
	}
}
