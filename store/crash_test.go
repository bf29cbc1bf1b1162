package store

import (
	"bufio"
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"

	"proa.dev/kv"
)

// crashDir is the environment variable with the data folder that a child process writes to until it is killed.
const crashDir = "PROA_STORE_CRASH_DIR"

// fatalEnv is the environment variable that makes a child process log a fatal error of etcd.
const fatalEnv = "PROA_STORE_LOST"

// TestMain runs the child processes of TestKilledProcessKeepsAcknowledgedWrites and TestFatalErrorEndsProcess.
func TestMain(m *testing.M) {
	if os.Getenv(fatalEnv) != "" {
		os.Exit(logFatalAndRecover())
	}
	if dir := os.Getenv(crashDir); dir != "" {
		os.Exit(writeUntilKilled(dir))
	}
	os.Exit(m.Run())
}

// logFatalAndRecover logs a fatal error in a goroutine that recovers from panics, as an HTTP server does.
func logFatalAndRecover() int {
	f := &fatal{}
	f.started.Store(true)
	defer func() { _ = recover() }()
	newZap(slog.New(slog.DiscardHandler), f).Fatal("the database is gone")
	return 0
}

// TestFatalErrorEndsProcess checks that a fatal error of etcd ends the process, even if the caller recovers from panics.
func TestFatalErrorEndsProcess(t *testing.T) {
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), program)
	cmd.Env = append(os.Environ(), fatalEnv+"=1")
	out, err := cmd.CombinedOutput()
	if cmd.ProcessState.ExitCode() != 2 || !strings.Contains(string(out), "the store cannot go on") ||
		!strings.Contains(string(out), "the database is gone") {
		t.Errorf("%v: %s", err, out)
	}
}

// writeUntilKilled writes from several goroutines and prints each write after it was acknowledged.
func writeUntilKilled(dir string) int {
	ctx := context.Background()
	e, err := Embed(ctx, Config{Dir: dir})
	if err != nil {
		fmt.Println("error", err)
		return 1
	}
	rev, err := e.Revision(ctx)
	if err != nil {
		fmt.Println("error", err)
		return 1
	}
	fmt.Println("start", rev)
	var wg sync.WaitGroup
	for w := range 4 {
		wg.Go(func() {
			for i := 0; ; i++ {
				key := fmt.Sprintf("/crash/%d-%d-%d", rev, w, i)
				at, err := e.Commit(ctx, kv.Write{Key: key, Value: []byte(key)}, kv.Write{Key: key + "/twin", Value: []byte(key)})
				if err != nil {
					fmt.Println("error", err)
					return
				}
				// Each line is written with one call, so that the pipe does not split it.
				fmt.Printf("ack %s %d\n", key, at)
			}
		})
	}
	wg.Wait()
	return 1
}

// TestKilledProcessKeepsAcknowledgedWrites kills a writing process and checks that all acknowledged writes are there, and
// that revisions never decrease.
func TestKilledProcessKeepsAcknowledgedWrites(t *testing.T) {
	dir := t.TempDir()
	acks := map[string]int64{}
	lastRev := int64(0)
	for round := range 3 {
		lastRev = runAndKill(t, dir, 100*(round+1), acks, lastRev)
	}
	e := embed(t, dir)
	if rev, err := e.Revision(t.Context()); err != nil || rev < lastRev {
		t.Fatalf("the store is at %d after an acknowledgement at %d (%v)", rev, lastRev, err)
	}
	for key, rev := range acks {
		for _, k := range []string{key, key + "/twin"} {
			p, ok, err := e.Get(t.Context(), k)
			if err != nil || !ok || p.Rev != rev || string(p.Value) != key {
				t.Errorf("%s was acknowledged at %d; now %v, %q at %d, %v", k, rev, ok, p.Value, p.Rev, err)
			}
		}
	}
	t.Logf("%d acknowledged transactions checked", len(acks))
}

// runAndKill runs a child process, kills it after some acknowledged writes, and returns the highest revision that it printed.
func runAndKill(t *testing.T, dir string, after int, acks map[string]int64, lastRev int64) int64 {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), crashDir+"="+dir)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	for n := 0; lines.Scan(); n++ {
		switch f := strings.Fields(lines.Text()); {
		case len(f) == 2 && f[0] == "start":
			if rev := parseNumber(t, f[1]); rev < lastRev {
				t.Errorf("the store came back at %d after an acknowledgement at %d", rev, lastRev)
			}
		case len(f) == 3 && f[0] == "ack":
			acks[f[1]] = parseNumber(t, f[2])
			lastRev = max(lastRev, acks[f[1]])
		default:
			t.Errorf("the child process printed %q", lines.Text())
		}
		if n == after {
			if err := cmd.Process.Kill(); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := cmd.Wait(); err == nil || cmd.ProcessState.ExitCode() != -1 {
		t.Errorf("the victim was not killed: %v", err)
	}
	return lastRev
}

func parseNumber(t *testing.T, s string) int64 {
	t.Helper()
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}
