package lifecycle

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"proa.dev/cli/command"
	"proa.dev/cli/localcluster"
	"proa.dev/run/datafolder"
)

// lockedDirEnv makes TestStubbornServer lock the data folder that it names.
const lockedDirEnv = "PROA_TEST_LOCKED_DIR"

// TestStubbornServer is a server in a process of its own, for other tests: it locks a data folder and does not end at SIGTERM.
func TestStubbornServer(t *testing.T) {
	if dir := os.Getenv(lockedDirEnv); dir != "" {
		terminated := make(chan os.Signal, 1)
		signal.Notify(terminated, syscall.SIGTERM)
		if _, err := datafolder.Lock(dir, time.Minute); err != nil {
			t.Fatal(err)
		}
		_, _ = os.Stdout.WriteString("locked\n")
		<-terminated
		_, _ = os.Stdout.WriteString("terminated\n")
		time.Sleep(time.Minute)
	}
}

// startStubbornServer starts TestStubbornServer for a new data folder, and returns when it has locked that.
func startStubbornServer(t *testing.T) (dir string, server *exec.Cmd, stdout *bufio.Reader) {
	t.Helper()
	dir = t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "pki"), 0o700); err != nil {
		t.Fatal(err)
	}
	server = exec.Command(os.Args[0], "-test.run=^TestStubbornServer$")
	server.Env = append(os.Environ(), lockedDirEnv+"="+dir)
	out, err := server.StdoutPipe()
	if err == nil {
		err = server.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Process.Kill(); _ = server.Wait() })
	stdout = bufio.NewReader(out)
	if _, err := stdout.ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	return dir, server, stdout
}

// TestInterruptedDown checks that an interrupted "down" reports what is left and what to do.
func TestInterruptedDown(t *testing.T) {
	dir, server, lines := startStubbornServer(t)
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	go func() {
		_, _ = lines.ReadString('\n') // the server got SIGTERM
		interrupt()
	}()
	var out bytes.Buffer
	err := down(ctx, &command.Env{Out: &out, Err: &out}, localcluster.Cluster{Dir: dir}, downOptions{purge: true, limit: time.Minute})
	var code command.ExitCode
	if !errors.As(err, &code) || code != command.Interrupted {
		t.Errorf("it ends with %v", err)
	}
	for _, want := range []string{fmt.Sprintf("process %d, which was told to stop", server.Process.Pid), "containers of the nodes",
		"the folder " + dir, "down --purge --data-dir " + dir, "up --data-dir " + dir} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("it does not say %q:\n%s", want, out.String())
		}
	}
}
