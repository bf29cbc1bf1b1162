package e2e

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"proa.dev/test/ports"
)

// TestInterruptedUpReportsWhatIsLeft checks that an interrupted "up" reports what is left, and exits with code 130.
func TestInterruptedUpReportsWhatIsLeft(t *testing.T) {
	t.Parallel()
	proa := build(t)["proa"]
	// With an etcd that never answers "up" waits until it is interrupted.
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	data := filepath.Join(t.TempDir(), "a")
	cmd := exec.Command(proa, "up", "--no-node", "--no-merge", "--data-dir", data, "--listen", "127.0.0.1:"+ports.Strings(t, 1)[0],
		"--etcd-servers", "http://"+silent.Addr().String())
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer exec.Command(proa, "down", "--purge", "--now", "--data-dir", data).Run()
	// The server locks its data folder when it starts.
	buffer := make([]byte, 1024)
	if n, err := out.Read(buffer); err != nil || !strings.Contains(string(buffer[:n]), "Starting the cluster") {
		t.Fatalf("up says %q, %v", buffer[:n], err)
	}
	conn, err := silent.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	_, _ = io.Copy(io.Discard, out)
	_ = cmd.Wait()
	if code := cmd.ProcessState.ExitCode(); code != 130 {
		t.Errorf("the exit code is %d, want 130", code)
	}
	for _, want := range []string{"goes on starting the cluster in the background",
		"the folder " + data + ": it was created by this command", "down --data-dir " + data, "down --purge --data-dir " + data} {
		if !strings.Contains(stderr.String(), want) {
			t.Errorf("it does not say %q:\n%s", want, stderr.String())
		}
	}
	pid := regexp.MustCompile(`process (\d+),`).FindStringSubmatch(stderr.String())
	if pid == nil {
		t.Fatalf("no process is named:\n%s", stderr.String())
	}
	if n, _ := strconv.Atoi(pid[1]); syscall.Kill(n, 0) != nil {
		t.Errorf("process %s does not run", pid[1])
	}
	// The advice is to wait with the same command.
	if text, err := exec.Command(proa, "up", "--no-merge", "--data-dir", data, "--timeout", "2s").CombinedOutput(); err == nil ||
		!strings.Contains(string(text), "already running") || !strings.Contains(string(text), "is not ready after 2s") {
		t.Errorf("a cluster that never becomes ready: %v\n%s", err, text)
	}
	if text, err := exec.Command(proa, "down", "--purge", "--now", "--data-dir", data).CombinedOutput(); err != nil {
		t.Errorf("down --purge: %v\n%s", err, text)
	}
	if _, err := os.Stat(data); err == nil {
		t.Errorf("%s is still there", data)
	}
}

// nobodyUID is the ID of a user without permissions.
const nobodyUID = 65534

// asNobody runs proa in a folder that is accessible to all users, as the user nobody if the test runs as root.
func asNobody(t *testing.T, dir, proa string, args ...string) (string, error) {
	t.Helper()
	cmd := exec.Command(proa, args...)
	cmd.Dir, cmd.Env = dir, []string{"HOME=" + dir, "PATH=" + os.Getenv("PATH")}
	if os.Geteuid() == 0 {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobodyUID, Gid: nobodyUID}}
	}
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// openFolder creates a folder that all users may write into, with a copy of proa.
func openFolder(t *testing.T) (dir, proa string) {
	t.Helper()
	built := build(t)["proa"]
	dir, err := os.MkdirTemp("", "open-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	proa = copyFile(t, built, filepath.Join(dir, "proa"))
	for _, path := range []string{dir, proa} {
		if err := os.Chmod(path, 0o777); err != nil {
			t.Fatal(err)
		}
	}
	return dir, proa
}

// TestUpWithNodeNeedsRoot checks that "up --node" without root fails at once with the reason, before anything is
// created.
func TestUpWithNodeNeedsRoot(t *testing.T) {
	t.Parallel()
	dir, proa := openFolder(t)
	for _, args := range [][]string{{"--node", "a"}, {"--node", "a", "--nodes", "3"}, {"--config", "node.yaml"}} {
		if err := os.WriteFile(filepath.Join(dir, "node.yaml"), []byte("node: a\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		out, err := asNobody(t, dir, proa, append([]string{"up", "--no-merge", "--data-dir", "a"}, args...)...)
		if err == nil || !strings.Contains(out, "a node that runs containers needs root") {
			t.Errorf("up %v: %v\n%s", args, err, out)
		}
		if _, err := os.Stat(filepath.Join(dir, "a")); err == nil {
			t.Errorf("up %v made a folder", args)
		}
	}
}

// TestCommandsWithoutPermission checks that "status" and other commands without permission for a data folder fail with that reason,
// and do not report that the cluster is not running.
func TestCommandsWithoutPermission(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("it takes root to have a folder of another user")
	}
	t.Parallel()
	dir, proa := openFolder(t)
	for i, mode := range []os.FileMode{0o700, 0o711} { // without and with a node
		name := fmt.Sprintf("data-%d", i)
		data := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Join(data, "pki"), 0o700); err != nil {
			t.Fatal(err)
		}
		for _, file := range []string{"server.pid", "server.yaml"} {
			if err := os.WriteFile(filepath.Join(data, file), nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.Chmod(data, mode); err != nil {
			t.Fatal(err)
		}
		for _, args := range [][]string{{"status"}, {"down"}, {"certs"}, {"token", "create"}, {"images", "list"}, {"up", "--no-node"}} {
			out, err := asNobody(t, dir, proa, append(args, "--data-dir", name)...)
			if err == nil || !strings.Contains(out, "belongs to another user") || !strings.Contains(out, "run this as root") ||
				strings.Contains(out, "not running") {
				t.Errorf("mode %o: proa %v: %v\n%s", mode, args, err, out)
			}
		}
	}
}
