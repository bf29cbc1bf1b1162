package runtime

import (
	"bufio"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"proa.dev/node/subprocess"
	"proa.dev/test/program"
)

// agentEnv makes the test binary an agent that only runs a runtime, to be killed by a test.
const agentEnv = "PROA_TEST_RUNTIME"

func TestMain(m *testing.M) {
	if dir := os.Getenv(agentEnv); dir != "" {
		os.Exit(runAgent(dir))
	}
	os.Exit(m.Run())
}

func TestContainersOutliveAgent(t *testing.T) {
	c := newConfig(t)
	for range 2 { // the second agent takes over, and is killed too
		pid := killAgent(t, c)
		if args := subprocess.Arguments(pid); len(args) == 0 || filepath.Base(args[0]) != "containerd" {
			t.Fatalf("containerd has ended with the agent: process %d is %q", pid, args)
		}
		r := startRuntime(t, c)
		if r.Pid() != pid {
			t.Errorf("containerd is process %d, was %d", r.Pid(), pid)
		}
		r.Detach()
	}
	r := startRuntime(t, c)
	client := connect(t, r)
	id := runPause(t, r, client, c)
	// Kill containerd too.
	pid := r.Pid()
	r.Detach()
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	_, _ = syscall.Wait4(pid, nil, 0, nil)
	r = startRuntime(t, c)
	if !isRunning(t, client, id) {
		t.Error("the container has ended with agent and containerd")
	}
	// What Purge finds now has neither agent nor containerd, but shims, containers, mounts and cgroups.
	pid = r.Pid()
	r.Detach()
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	_, _ = syscall.Wait4(pid, nil, 0, nil)
}

// TestContainerdEndsWhileItIsTakenOver checks that another containerd is started if the one of an earlier agent ends before it answers,
// as one does that was just killed.
func TestContainerdEndsWhileItIsTakenOver(t *testing.T) {
	c := newConfig(t)
	pid := killAgent(t, c)
	if err := program.Freeze(pid); err != nil {
		t.Fatal(err)
	}
	var log takeOverLog
	started := make(chan error, 1)
	go func() {
		r, err := Start(t.Context(), c, slog.New(slog.NewTextHandler(&log, nil)))
		if err == nil {
			if r.Pid() == pid {
				err = errors.New("the runtime is the process that was killed")
			}
			r.Detach()
		}
		started <- err
	}()
	for deadline := time.Now().Add(time.Minute); !log.has("is taken over") && time.Now().Before(deadline); {
		time.Sleep(5 * time.Millisecond)
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if err := <-started; err != nil || !log.has("has ended") {
		t.Errorf("the start ends with %v", err)
	}
}

// takeOverLog is a log that can be read while it is written.
type takeOverLog struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *takeOverLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *takeOverLog) has(text string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Contains(l.text.String(), text)
}

// killAgent runs an agent until its runtime is up, kills it, and returns the process id of containerd.
func killAgent(t *testing.T, c Config) (containerd int) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), self)
	cmd.Env = append(os.Environ(), agentEnv+"="+c.DataDir)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Stderr = t.Output()
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Errorf("the agent prints %q, %v", line, err)
	}
	_, _ = fmt.Sscan(line, &containerd)
	if err := syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL); err != nil { // its whole process group
		t.Error(err)
	}
	_ = cmd.Wait()
	return containerd
}

func TestPurgeUnmounts(t *testing.T) {
	c := newConfig(t)
	r := startRuntime(t, c)
	defer r.Detach()
	// A folder of the host that is mounted below the state folder must not be removed.
	outside := t.TempDir()
	hostFile := filepath.Join(outside, "precious")
	if err := os.WriteFile(hostFile, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"x", "x/y"} {
		dir := filepath.Join(r.layout.state, name)
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := syscall.Mount(outside, dir, "", syscall.MS_BIND, ""); err != nil {
			t.Fatal(err)
		}
		if err := os.MkdirAll(filepath.Join(outside, "y"), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := Purge(t.Context(), c, logger(t)); err == nil || !strings.Contains(err.Error(), "another process") {
		t.Errorf("purge below a running runtime: %v", err)
	}
	if err := r.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := Purge(t.Context(), c, logger(t)); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(hostFile); err != nil {
		t.Errorf("purge has removed a file of a mounted folder: %v", err)
	}
	if err := Purge(t.Context(), c, logger(t)); err != nil {
		t.Errorf("a second purge: %v", err)
	}
}

func TestNetworkNamespace(t *testing.T) {
	c := newConfig(t)
	made, done := make(chan string), make(chan struct{})
	go func() {
		runtime.LockOSThread() // the namespace ends with the thread
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			t.Error(err)
		}
		made <- fmt.Sprintf("/proc/%d/task/%d/ns/net", os.Getpid(), unix.Gettid())
		<-done
	}()
	c.NetNS = <-made
	defer close(done)
	r := startRuntime(t, c)
	defer r.Detach()
	want, err := os.Readlink(c.NetNS)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/net", r.Pid())); err != nil || got != want {
		t.Errorf("containerd is in %s, %v; want %s", got, err, want)
	}
	if own, err := os.Readlink("/proc/thread-self/ns/net"); err != nil || own == want {
		t.Errorf("the agent is in %s, %v", own, err)
	}
	c.NetNS = "/nowhere"
	if _, err := subprocess.Start(subprocess.Command{Program: "/bin/true", Log: filepath.Join(t.TempDir(), "log"),
		Namespace: c.NetNS}); err == nil {
		t.Error("a namespace that does not exist was entered")
	}
}
