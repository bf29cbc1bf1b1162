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

// crashDir names, in the environment of a child, the data it shall write to until it is killed.
const crashDir = "PROA_STORE_CRASH_DIR"

// lostEnv makes a child process have a fatal error of etcd.
const lostEnv = "PROA_STORE_LOST"

// TestMain runs the child processes of TestKill and TestLostEndsProcess.
func TestMain(m *testing.M) {
	if os.Getenv(lostEnv) != "" {
		os.Exit(goesOn())
	}
	if dir := os.Getenv(crashDir); dir != "" {
		os.Exit(victim(dir))
	}
	os.Exit(m.Run())
}

// goesOn logs a fatal error in a goroutine that recovers from panics, as an HTTP server does.
func goesOn() int {
	f := &fatal{}
	f.started.Store(true)
	defer func() { _ = recover() }()
	newZap(slog.New(slog.DiscardHandler), f).Fatal("the database is gone")
	return 0
}

// TestLostEndsProcess checks that a fatal error of etcd ends the process, even if the caller recovers from panics.
func TestLostEndsProcess(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), self)
	cmd.Env = append(os.Environ(), lostEnv+"=1")
	out, err := cmd.CombinedOutput()
	if cmd.ProcessState.ExitCode() != 2 || !strings.Contains(string(out), "the store cannot go on") ||
		!strings.Contains(string(out), "the database is gone") {
		t.Errorf("%v: %s", err, out)
	}
}

// victim writes from several goroutines and prints each write after it was acknowledged.
func victim(dir string) int {
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
				// A line is written by one call, so the pipe does not split it.
				fmt.Printf("ack %s %d\n", key, at)
			}
		})
	}
	wg.Wait()
	return 1
}

// TestKill kills a writing process and checks that all acknowledged writes are there, and that revisions never go back.
func TestKill(t *testing.T) {
	dir := t.TempDir()
	acks := map[string]int64{}
	high := int64(0)
	for round := range 3 {
		high = killOne(t, dir, 100*(round+1), acks, high)
	}
	e := embed(t, dir)
	if rev, err := e.Revision(t.Context()); err != nil || rev < high {
		t.Fatalf("the store is at %d after an acknowledgement at %d (%v)", rev, high, err)
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

// killOne runs a victim, kills it after some acknowledged writes, and returns the highest revision that it printed.
func killOne(t *testing.T, dir string, after int, acks map[string]int64, high int64) int64 {
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
			if rev := number(t, f[1]); rev < high {
				t.Errorf("the store came back at %d after an acknowledgement at %d", rev, high)
			}
		case len(f) == 3 && f[0] == "ack":
			acks[f[1]] = number(t, f[2])
			high = max(high, acks[f[1]])
		default:
			t.Errorf("the victim says %q", lines.Text())
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
	return high
}

func number(t *testing.T, s string) int64 {
	t.Helper()
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}
