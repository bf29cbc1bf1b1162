package singlemember

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	bolt "go.etcd.io/bbolt"
	"go.etcd.io/etcd/client/pkg/v3/types"
	"go.etcd.io/etcd/server/v3/etcdserver/api/membership"
	"go.etcd.io/etcd/server/v3/storage/datadir"
	"go.etcd.io/etcd/server/v3/storage/mvcc"
	"go.etcd.io/etcd/server/v3/storage/schema"
	"go.uber.org/zap"

	"proa.dev/store/etcdtest"
	"proa.dev/store/singlemember/memberlog"
)

// openFiles returns the files in a folder that this process has open.
func openFiles(t testing.TB, dir string) []string {
	t.Helper()
	fds, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, fd := range fds {
		if name, err := os.Readlink("/proc/self/fd/" + fd.Name()); err == nil && strings.HasPrefix(name, dir) {
			names = append(names, name)
		}
	}
	return names
}

// refused opens data that cannot be used, and returns why. Nothing may stay open.
func refused(t *testing.T, cfg Config) error {
	t.Helper()
	m, err := Open(t.Context(), cfg)
	if err == nil {
		t.Errorf("opened at revision %d with %d keys", m.KV().Rev(), len(pairs(t, m.KV(), 0)))
		shut(t, m)
	}
	if files := openFiles(t, cfg.Dir); len(files) > 0 {
		t.Errorf("open after %v: %s", err, files)
	}
	return err
}

// TestOpenNew creates data in empty folders, and opens it again.
func TestOpenNew(t *testing.T) {
	for name, prepare := range map[string]func(t *testing.T, dir string){
		"no folder":        func(t *testing.T, dir string) { remove(t, dir) },
		"empty":            func(*testing.T, string) {},
		"empty log folder": func(t *testing.T, dir string) { makeDir(t, datadir.ToWALDir(dir)) },
		"empty database": func(t *testing.T, dir string) {
			makeDir(t, datadir.ToSnapDir(dir))
			writeFile(t, datadir.ToBackendFileName(dir), nil)
		},
		"a database without a log": func(t *testing.T, dir string) {
			// A start was killed after it had made the database.
			makeDir(t, datadir.ToSnapDir(dir))
			m := &Member{cfg: config(dir)}
			m.openBackend()
			if err := m.backend.Close(); err != nil {
				t.Fatal(err)
			}
		},
		"a log without entries": func(t *testing.T, dir string) {
			j, err := memberlog.Create(dir, 1, 2, zap.NewNop())
			if err != nil {
				t.Fatal(err)
			}
			if err := j.Close(); err != nil {
				t.Fatal(err)
			}
		},
		"a log that was being made": func(t *testing.T, dir string) {
			makeDir(t, datadir.ToWALDir(dir)+".tmp")
			writeFile(t, filepath.Join(datadir.ToWALDir(dir)+".tmp", "0000000000000000-0000000000000000.wal"), make([]byte, 100))
		},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := config(filepath.Join(t.TempDir(), "data"))
			makeDir(t, cfg.Dir)
			prepare(t, cfg.Dir)
			for i := range 3 {
				s := start(t, i == 1, cfg)
				if now := s.KV().Rev(); now != int64(i+1) {
					t.Errorf("start %d is at revision %d", i, now)
				}
				if _, err := s.Txn(t.Context(), put("a", "1")); err != nil {
					t.Error(err)
				}
				s.stop(t)
			}
			if files := openFiles(t, cfg.Dir); len(files) > 0 {
				t.Errorf("open after the close: %s", files)
			}
		})
	}
}

func remove(t *testing.T, path string) {
	t.Helper()
	if err := os.RemoveAll(path); err != nil {
		t.Fatal(err)
	}
}

func makeDir(t *testing.T, dir string) {
	t.Helper()
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
}

func writeFile(t *testing.T, path string, data []byte) {
	t.Helper()
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestOpenCanceled(t *testing.T) {
	cfg := config(t.TempDir())
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for range 2 {
		if _, err := Open(ctx, cfg); !errors.Is(err, context.Canceled) {
			t.Errorf("error %v", err)
		}
		if files := openFiles(t, cfg.Dir); len(files) > 0 {
			t.Errorf("open: %s", files)
		}
		m := open(t, cfg)
		mustPut(t, m, "a", "1")
		shut(t, m)
	}
}

// lateEnd is a context that ends with the second call of Err.
type lateEnd struct {
	context.Context
	n int
}

func (l *lateEnd) Err() error {
	if l.n++; l.n > 1 {
		return context.Canceled
	}
	return nil
}

// TestOpenCanceledLate ends the context when everything is open.
func TestOpenCanceledLate(t *testing.T) {
	cfg := config(t.TempDir())
	for range 2 {
		if _, err := Open(&lateEnd{Context: t.Context()}, cfg); !errors.Is(err, context.Canceled) {
			t.Errorf("error %v", err)
		}
		if files := openFiles(t, cfg.Dir); len(files) > 0 {
			t.Errorf("open: %s", files)
		}
		m := open(t, cfg)
		mustPut(t, m, "a", "1")
		shut(t, m)
	}
}

// TestUnusable opens data of which a part is missing or wrong.
func TestUnusable(t *testing.T) {
	for _, c := range []struct {
		name   string
		writes int
		damage func(t *testing.T, cfg Config)
		want   string
	}{
		{"no log", 5, func(t *testing.T, cfg Config) { remove(t, datadir.ToWALDir(cfg.Dir)) }, "missing"},
		{"no log after snapshots", 100, func(t *testing.T, cfg Config) { remove(t, datadir.ToWALDir(cfg.Dir)) }, "missing"},
		{"empty log folder", 5, func(t *testing.T, cfg Config) {
			remove(t, datadir.ToWALDir(cfg.Dir))
			makeDir(t, datadir.ToWALDir(cfg.Dir))
		}, "missing"},
		{"no database after snapshots", 100, func(t *testing.T, cfg Config) { remove(t, datadir.ToBackendFileName(cfg.Dir)) },
			"is missing, and the log has only"},
		{"another's new log", 5, func(t *testing.T, cfg Config) {
			remove(t, datadir.ToWALDir(cfg.Dir))
			j, err := memberlog.Create(cfg.Dir, 1, 2, cfg.Log)
			if err != nil {
				t.Fatal(err)
			}
			if err := j.Close(); err != nil {
				t.Fatal(err)
			}
		}, "the database has entries of the log up to"},
		{"an older log", 50, func(t *testing.T, cfg Config) {
			old := config(t.TempDir())
			shut(t, open(t, old))
			remove(t, datadir.ToWALDir(cfg.Dir))
			if err := os.Rename(datadir.ToWALDir(old.Dir), datadir.ToWALDir(cfg.Dir)); err != nil {
				t.Fatal(err)
			}
		}, "the database has entries of the log up to"},
		{"no database but garbage", 5, func(t *testing.T, cfg Config) {
			writeFile(t, datadir.ToBackendFileName(cfg.Dir), bytes.Repeat([]byte("garbage "), 8192))
		}, "it is no database of etcd"},
		{"an empty database", 100, func(t *testing.T, cfg Config) {
			writeFile(t, datadir.ToBackendFileName(cfg.Dir), nil)
		}, "is empty, and the log has only"},
		{"a database that is cut off", 100, func(t *testing.T, cfg Config) {
			if err := os.Truncate(datadir.ToBackendFileName(cfg.Dir), 3*4096); err != nil {
				t.Fatal(err)
			}
		}, "is cut off: it has 12288 bytes of"},
		{"a log of garbage", 5, func(t *testing.T, cfg Config) {
			for _, f := range logFiles(t, cfg.Dir) {
				writeFile(t, f, bytes.Repeat([]byte("garbage "), 8192))
			}
		}, "the beginning of the log's newest file"},
		{"the newest file of the log is gone", 100, func(t *testing.T, cfg Config) {
			files := logFiles(t, cfg.Dir)
			remove(t, files[len(files)-1])
		}, "the data is damaged"},
	} {
		t.Run(c.name, func(t *testing.T) {
			cfg := config(t.TempDir())
			m := open(t, cfg)
			for i := range c.writes {
				mustPut(t, m, fmt.Sprint(i), "1")
			}
			shut(t, m)
			c.damage(t, cfg)
			if err := refused(t, cfg); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v; want one about %q", err, c.want)
			}
		})
	}
}

// TestNotAlone refuses the data of a cluster that has had a second member.
func TestNotAlone(t *testing.T) {
	urls := types.MustNewURLs([]string{"http://localhost:2999"})
	now := time.Now()
	t.Run("voter", func(t *testing.T) {
		cfg := config(t.TempDir())
		s := etcdtest.Start(t, cfg.Dir, 10000)
		if _, err := s.Txn(t.Context(), put("a", "1")); err != nil {
			t.Fatal(err)
		}
		if _, err := s.AddMember(t.Context(), *membership.NewMember("b", urls, "t", &now)); err != nil {
			t.Fatal(err)
		}
		s.HardStop()
		for _, what := range []string{"with", "without"} {
			if err := refused(t, cfg); !errors.Is(err, errNotAlone) {
				t.Errorf("%s the database: %v", what, err)
			}
			remove(t, datadir.ToBackendFileName(cfg.Dir))
		}
	})
	t.Run("learner", func(t *testing.T) {
		cfg := config(t.TempDir())
		m := open(t, cfg)
		schema.NewMembershipBackend(cfg.Log, m.backend).MustSaveMemberToBackend(membership.NewMemberAsLearner("b", urls, "t", &now))
		shut(t, m)
		if err := refused(t, cfg); !errors.Is(err, errNotAlone) {
			t.Error(err)
		}
	})
}

// TestMoved opens data after the peer address of the member was changed.
func TestMoved(t *testing.T) {
	cfg := config(t.TempDir())
	s := etcdtest.Start(t, cfg.Dir, 10000)
	who := s.Cluster().Member(s.MemberID())
	who.PeerURLs = []string{"http://localhost:2999"}
	if _, err := s.UpdateMember(t.Context(), *who); err != nil {
		t.Fatal(err)
	}
	s.HardStop()
	for range 2 {
		m := open(t, cfg)
		if got := m.cluster.Member(m.id).PeerURLs[0]; got != who.PeerURLs[0] {
			t.Errorf("the member is at %s", got)
		}
		shut(t, m)
		remove(t, datadir.ToBackendFileName(cfg.Dir))
	}
}

func logFiles(t *testing.T, dir string) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(datadir.ToWALDir(dir), "*.wal"))
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	return files
}

// damages are ways to damage a segment at an offset.
var damages = []struct {
	name string
	do   func(data []byte, at int) []byte
}{
	{"cut", func(data []byte, at int) []byte { return data[:at] }},
	{"zeroed to the end", func(data []byte, at int) []byte { return append(data[:at:at], make([]byte, len(data)-at)...) }},
	{"a zeroed sector", func(data []byte, at int) []byte {
		at &^= 511
		clear(data[at:min(at+512, len(data))])
		return data
	}},
	{"a flipped bit", func(data []byte, at int) []byte {
		data[at] ^= 1 << (at % 8)
		return data
	}},
	{"a flipped byte", func(data []byte, at int) []byte {
		data[at] ^= 0xff
		return data
	}},
	{"gone", nil},
}

// TestDamagedLog opens data with only a log that is damaged somewhere. It is refused, or everything is there. Where
// nothing says up to where writes were acknowledged, what is there is what was written up to a point that is not before
// the damage; damage that does not go on to the end costs the last write at most.
func TestDamagedLog(t *testing.T) {
	cfg := config(t.TempDir())
	cfg.SnapshotEvery = 10000
	m := open(t, cfg)
	const n = 120
	for i := range n {
		mustPut(t, m, fmt.Sprintf("key%03d", i), value(i))
		if i == n/2 {
			// There are two terms.
			shut(t, m)
			m = open(t, cfg)
		}
	}
	shut(t, m)
	remove(t, datadir.ToBackendFileName(cfg.Dir))
	rng := rand.New(rand.NewPCG(1, 2))
	outcomes := map[string]int{}
	for i := range 180 {
		d := damages[i%len(damages)]
		broken := cfg
		broken.Dir = copyDir(t, cfg.Dir)
		marked := i/len(damages)%2 == 0
		if !marked {
			remove(t, filepath.Join(broken.Dir, "member", memberlog.AcknowledgedFile))
		}
		files := logFiles(t, broken.Dir)
		file := rng.IntN(len(files))
		data, err := os.ReadFile(files[file])
		if err != nil {
			t.Fatal(err)
		}
		// Most of the last file may be empty.
		used := len(bytes.TrimRight(data, "\x00"))
		at := rng.IntN(used)
		safe := writtenBefore(t, files[:file], data[:at&^511])
		what := fmt.Sprintf("marked %v, %s, file %d of %d at %d of %d", marked, d.name, file+1, len(files), at, used)
		if d.do == nil {
			safe = writtenBefore(t, files[:file], nil)
			remove(t, files[file])
		} else {
			writeFile(t, files[file], d.do(data, at))
		}
		got, err := Open(t.Context(), broken)
		if err != nil {
			outcomes[d.name+": refused"]++
			if !errors.Is(err, memberlog.ErrDamaged) {
				t.Errorf("%s: %v", what, err)
			}
			if files := openFiles(t, broken.Dir); len(files) > 0 {
				t.Errorf("%s: open after %v: %s", what, err, files)
			}
			continue
		}
		kept := prefix(t, what, got)
		if kept < safe {
			t.Errorf("%s: %d of %d writes are there; %d were before the damage", what, kept, n, safe)
		}
		if kept < n && (marked || kept < n-1 && strings.HasPrefix(d.name, "a ")) {
			t.Errorf("%s: opened with %d of %d writes", what, kept, n)
		}
		outcomes[d.name+": opened"]++
		if kept < n && file < len(files)-1 {
			outcomes[d.name+": opened without what other files have"]++
		}
		// What was opened can be used, and opened again.
		if kept < n {
			mustPut(t, got, fmt.Sprintf("key%03d", kept), value(kept))
		}
		shut(t, got)
		again := open(t, broken)
		if now := prefix(t, what, again); now != min(kept+1, n) {
			t.Errorf("%s: %d writes are there after a second start, and one more; before it were %d", what, now, kept)
		}
		shut(t, again)
	}
	t.Log(outcomes)
}

func value(i int) string { return fmt.Sprintf("<%03d>%s<%03d/>", i, strings.Repeat("v", 1500), i) }

// writtenBefore is how many of the values are whole in files and a part of one.
func writtenBefore(t *testing.T, files []string, data []byte) int {
	t.Helper()
	var all []byte
	for _, f := range files {
		d, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, d...)
	}
	all = append(all, data...)
	// The end of a record has a few bytes after the value.
	all = all[:max(0, len(all)-64)]
	return bytes.Count(all, []byte("/>"))
}

// prefix is how many of the writes are there, which have to be the first ones.
func prefix(t *testing.T, what string, m *Member) int {
	t.Helper()
	all := pairs(t, m.KV(), 0)
	for i := range len(all) {
		p := all[fmt.Sprintf("key%03d", i)]
		if p.value != value(i) || p.mod != int64(i+2) {
			t.Errorf("%s: write %d of %d is %.80v", what, i, len(all), p)
			break
		}
	}
	if now := m.KV().Rev(); now != int64(len(all)+1) {
		t.Errorf("%s: %d writes are there at revision %d", what, len(all), now)
	}
	return len(all)
}

// TestTornEnd kills a member while it writes: the last sectors of the log are not there, or only the first of what was
// being written. That is no damage, and never refused.
func TestTornEnd(t *testing.T) {
	for _, writes := range []int{0, 3} {
		cfg := config(t.TempDir())
		m := open(t, cfg)
		for i := range writes {
			mustPut(t, m, fmt.Sprintf("key%03d", i), value(i))
		}
		shut(t, m)
		remove(t, datadir.ToBackendFileName(cfg.Dir))
		remove(t, filepath.Join(cfg.Dir, "member", memberlog.AcknowledgedFile)) // the power is cut before it is on the disk
		data, err := os.ReadFile(logFiles(t, cfg.Dir)[0])
		if err != nil {
			t.Fatal(err)
		}
		// The head is written before the file has its name.
		for at := 512; at < len(bytes.TrimRight(data, "\x00")); at += 512 {
			torn := cfg
			torn.Dir = copyDir(t, cfg.Dir)
			clear(data[at:])
			writeFile(t, logFiles(t, torn.Dir)[0], data)
			got, err := Open(t.Context(), torn)
			if err != nil {
				t.Errorf("%d writes, torn at %d: %v", writes, at, err)
				continue
			}
			what := fmt.Sprintf("torn at %d", at)
			kept := prefix(t, what, got)
			mustPut(t, got, fmt.Sprintf("key%03d", kept), value(kept))
			shut(t, got)
			for _, genuine := range []bool{true, false} {
				s := start(t, genuine, torn)
				if now := len(pairs(t, s.KV(), 0)); now != kept+1 {
					t.Errorf("%s: %d writes after another start", what, now)
				}
				s.stop(t)
			}
			if data, err = os.ReadFile(logFiles(t, cfg.Dir)[0]); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// TestDamagedDatabase has records in the database that etcd answers with a panic, some of them while it holds a lock.
// They are refused, and not waited for.
func TestDamagedDatabase(t *testing.T) {
	rev := mvcc.NewRevBytes()
	mvcc.RevToBytes(mvcc.Revision{Main: 2}, rev)
	for bucket, key := range map[string]string{
		"lease": "garbagek", "key": string(rev), "alarm": "garbage", "members": "garbage", "meta": "confState", "cluster": "clusterVersion",
	} {
		t.Run(bucket, func(t *testing.T) {
			cfg := config(t.TempDir())
			m := open(t, cfg)
			mustPut(t, m, "a", "1")
			shut(t, m)
			db, err := bolt.Open(datadir.ToBackendFileName(cfg.Dir), 0o600, nil)
			if err != nil {
				t.Fatal(err)
			}
			if err := db.Update(func(tx *bolt.Tx) error {
				return tx.Bucket([]byte(bucket)).Put([]byte(key),
					[]byte("\xff\xffgarbage"))
			}); err != nil {
				t.Fatal(err)
			}
			if err := db.Close(); err != nil {
				t.Fatal(err)
			}
			answer := make(chan error, 1)
			ctx := t.Context()
			go func() {
				m, err := Open(ctx, cfg)
				if err == nil {
					err = m.Close()
				}
				answer <- err
			}()
			select {
			case err := <-answer:
				// Some of it, etcd does not look at.
				if err == nil && bucket != "alarm" && bucket != "meta" {
					t.Error("opened")
				}
			case <-time.After(5 * time.Second):
				t.Error("no answer")
			}
		})
	}
}
