package store

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	bolt "go.etcd.io/bbolt"
	"go.etcd.io/etcd/server/v3/storage/datadir"
	"go.etcd.io/etcd/server/v3/storage/wal"
	"go.uber.org/zap"

	"proa.dev/kv"
	"proa.dev/test/ports"
)

func embed(t testing.TB, dir string) *Etcd {
	t.Helper()
	e, err := Embed(t.Context(), Config{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
	return e
}

func TestRestart(t *testing.T) {
	dir := t.TempDir()
	last := int64(0)
	for i := range 3 {
		e := embed(t, dir)
		rev, err := e.Revision(t.Context())
		if err != nil || rev < last {
			t.Fatalf("restart %d: at %d after %d (%v)", i, rev, last, err)
		}
		if fresh, err := e.Fresh(t.Context(), "/a/"); err != nil || fresh < last {
			t.Fatalf("restart %d: fresh is %d after %d (%v)", i, fresh, last, err)
		}
		if last, err = e.Commit(t.Context(), kv.Write{Key: "/a/x", Value: []byte("1"), Rev: last}); err != nil {
			t.Fatal(err)
		}
		if err := e.Close(); err != nil {
			t.Fatal(err)
		}
		if err := e.Close(); err != nil {
			t.Fatalf("second close: %v", err)
		}
	}
}

func TestDataInUse(t *testing.T) {
	dir := t.TempDir()
	e := embed(t, dir)
	if _, err := Embed(t.Context(), Config{Dir: dir}); !errors.Is(err, errInUse) {
		t.Fatalf("a second member: %v", err)
	}
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	// An etcd that was not started by this package locks the database, but not our lock file.
	db, err := bolt.Open(datadir.ToBackendFileName(dir), 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Embed(t.Context(), Config{Dir: dir}); !errors.Is(err, errInUse) {
		t.Fatalf("beside another etcd: %v", err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	embed(t, dir)
}

func TestUnusableData(t *testing.T) {
	if _, err := Embed(t.Context(), Config{}); err == nil {
		t.Error("no folder is accepted")
	}
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Embed(t.Context(), Config{Dir: file}); err == nil {
		t.Error("a file is accepted as folder")
	}
	for name, damage := range map[string]string{
		"database": "member/snap/db",
		"log":      "member/wal/0000000000000000-0000000000000000.wal",
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			if err := embed(t, dir).Close(); err != nil {
				t.Fatal(err)
			}
			garbage := bytes.Repeat([]byte("garbage "), 64<<10)
			if err := os.WriteFile(filepath.Join(dir, damage), garbage, 0o600); err != nil {
				t.Fatal(err)
			}
			_, err := Embed(t.Context(), Config{Dir: dir})
			if err == nil {
				t.Fatal("garbage is accepted")
			}
			t.Log(err)
		})
	}
}

func TestStartIsCanceled(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	dir := t.TempDir()
	if _, err := Embed(ctx, Config{Dir: dir}); !errors.Is(err, context.Canceled) {
		t.Fatalf("got %v", err)
	}
	embed(t, dir)
}

// TestKilledBeforeFirstLogEntry opens the data of a member that was killed before its log had an entry.
func TestKilledBeforeFirstLogEntry(t *testing.T) {
	dir := t.TempDir()
	if err := os.MkdirAll(datadir.ToMemberDir(dir), 0o700); err != nil {
		t.Fatal(err)
	}
	w, err := wal.Create(zap.NewNop(), datadir.ToWALDir(dir), []byte("nobody"))
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := embed(t, dir).Commit(t.Context(), kv.Write{Key: "/a/x", Value: []byte("1")}); err != nil {
		t.Fatal(err)
	}
}

func TestHook(t *testing.T) {
	hookErr := errors.New("boom")
	var failOp bool
	var calls []string
	e, err := Embed(t.Context(), Config{Dir: t.TempDir(), Hook: func(op, key string) error {
		calls = append(calls, op+" "+key)
		if failOp {
			return hookErr
		}
		return nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	for _, failOp = range []bool{false, true} {
		_, err1 := e.Commit(t.Context(), kv.Write{Key: "/a/x", Value: []byte("1"), Rev: 0})
		_, _, err2 := e.Get(t.Context(), "/a/x")
		_, err3 := e.List(t.Context(), kv.Range{Prefix: "/a/"})
		_, err4 := e.Fresh(t.Context(), "/a/")
		err5 := e.Progress(t.Context())
		for _, err := range []error{err1, err2, err3, err4, err5} {
			if failOp != (errors.Is(err, hookErr) && errors.Is(err, kv.ErrUnavailable)) {
				t.Errorf("with the hook failing %v: %v", failOp, err)
			}
		}
	}
	want := "commit /a/x,get /a/x,list /a/,fresh /a/,progress "
	if got := strings.Join(calls, ","); got != want+","+want {
		t.Errorf("got %s", got)
	}
}

func TestSnapshot(t *testing.T) {
	for name, e := range map[string]*Etcd{"embedded": embed(t, t.TempDir()), "external": connectTo(t, serveEtcd(t).addr)} {
		t.Run(name, func(t *testing.T) {
			if _, err := e.Commit(t.Context(), kv.Write{Key: "/a/x", Value: []byte("1")}); err != nil {
				t.Fatal(err)
			}
			if err := e.Healthy(t.Context()); err != nil {
				t.Error(err)
			}
			size, err := e.Size(t.Context())
			if err != nil || size <= 0 {
				t.Errorf("size %d, %v", size, err)
			}
			var buf bytes.Buffer
			if err := e.Snapshot(t.Context(), &buf); err != nil {
				t.Fatal(err)
			}
			data := buf.Bytes()[:buf.Len()-sha256.Size]
			if sum := sha256.Sum256(data); !bytes.Equal(sum[:], buf.Bytes()[len(data):]) {
				t.Error("the sum is wrong")
			}
			path := filepath.Join(t.TempDir(), "db")
			if err := os.WriteFile(path, data, 0o600); err != nil {
				t.Fatal(err)
			}
			db, err := bolt.Open(path, 0o600, &bolt.Options{ReadOnly: true})
			if err != nil {
				t.Fatal(err)
			}
			defer db.Close()
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			if err := e.Snapshot(ctx, &buf); !errors.Is(err, context.Canceled) {
				t.Errorf("a canceled snapshot: %v", err)
			}
		})
	}
}

// TestDataIsReadableByEtcd starts the etcd program that PROA_ETCD names on data that was written here, and then reads here
// what that etcd has written.
func TestDataIsReadableByEtcd(t *testing.T) {
	program := os.Getenv("PROA_ETCD")
	if program == "" {
		t.Skip("PROA_ETCD names no etcd")
	}
	dir := t.TempDir()
	e := embed(t, dir)
	rev, err := e.Commit(t.Context(), kv.Write{Key: "/a/x", Value: []byte("1")})
	if err != nil {
		t.Fatal(err)
	}
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	addr, peer := ports.Address(t), ports.Address(t)
	cmd := exec.CommandContext(ctx, program, "--data-dir", dir, "--log-level", "error",
		"--listen-client-urls", "http://"+addr, "--advertise-client-urls", "http://"+addr,
		"--listen-peer-urls", "http://"+peer)
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	out := connectTo(t, addr)
	if p, _, err := out.Get(t.Context(), "/a/x"); err != nil || p.Rev != rev {
		t.Errorf("etcd has %+v, %v", p, err)
	}
	next, err := out.Commit(t.Context(), kv.Write{Key: "/a/x", Value: []byte("2"), Rev: rev})
	if err != nil {
		t.Error(err)
	}
	if err := out.Close(); err != nil {
		t.Error(err)
	}
	cancel()
	cmd.Wait()
	if p, _, err := embed(t, dir).Get(t.Context(), "/a/x"); err != nil || p.Rev != next || string(p.Value) != "2" {
		t.Errorf("back home: %+v, %v", p, err)
	}
}
