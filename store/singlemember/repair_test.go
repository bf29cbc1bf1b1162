package singlemember

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/server/v3/storage/datadir"

	"proa.dev/store/singlemember/datarepair"
	"proa.dev/store/singlemember/memberdb"
	"proa.dev/store/singlemember/memberlog"
)

// crashedLog makes n writes, of which the database has all but the last few or none, and returns the configuration of a
// folder as a crash leaves it.
func crashedLog(t *testing.T, n int, inDatabase bool) Config {
	t.Helper()
	cfg := config(t.TempDir())
	cfg.SnapshotEvery, cfg.BatchInterval = 1<<30, time.Hour
	m := openWithCleanup(t, cfg)
	for i := range n {
		mustPut(t, m, fmt.Sprintf("key%03d", i), value(i))
		if inDatabase && i == n-4 {
			m.Backend().ForceCommit()
		}
	}
	cfg.Dir = crashCopy(t, m.Backend(), cfg.Dir)
	return cfg
}

// damageWrite destroys a sector in the middle of a write.
func damageWrite(t *testing.T, dir string, n int) {
	t.Helper()
	for _, file := range logFiles(t, dir) {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if at := bytes.Index(data, []byte(fmt.Sprintf("<%03d>", n))); at >= 0 {
			clear(data[(at+memberlog.Sector)&^(memberlog.Sector-1) : (at+2*memberlog.Sector)&^(memberlog.Sector-1)])
			writeFile(t, file, data)
			return
		}
	}
	t.Fatalf("write %d is not in the log", n)
}

// readFiles returns the files of a data folder with their content.
func readFiles(t *testing.T, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	files, err := filepath.Glob(filepath.Join(dir, "member", "*", "*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		data, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		all[f] = string(data)
	}
	return all
}

// TestCheckAndRepair checks that damage is found without changing a file, and repaired: the writes up to some point are
// kept, the others are listed, and a copy of the damaged files stays. etcd can start from the result.
func TestCheckAndRepair(t *testing.T) {
	const n = 60
	for _, c := range []struct {
		name        string
		inDatabase  bool
		damage      func(t *testing.T, dir string)
		kept        int
		wantDamage  string
		wantDropped []string
	}{
		{"a write in the middle", false, func(t *testing.T, dir string) { damageWrite(t, dir, 20) }, 20, "checksum is wrong",
			[]string{"entry 24 of the log, which cannot be read",
				`entry 25, which cannot be kept without those before it: a transaction: put "key021"`, `put "key059"`}},
		{"a write that the database has", true, func(t *testing.T, dir string) { damageWrite(t, dir, 20) }, n, "checksum is wrong", nil},
		{"the last write", false, func(t *testing.T, dir string) { damageWrite(t, dir, n-1) }, n - 1,
			"writes were acknowledged up to entry 63",
			[]string{"entry 63 of the log, which cannot be read"}},
		{"the whole log", true, func(t *testing.T, dir string) { remove(t, datadir.ToWALDir(dir)) }, n - 3,
			"is missing, and there were writes up to its entry 63",
			[]string{"entries 61 to 63 of the log, which cannot be read"}},
		{"the database", true, func(t *testing.T, dir string) {
			if err := os.Truncate(datadir.ToBackendFileName(dir), 4096*2); err != nil {
				t.Fatal(err)
			}
		}, n, "is cut off: it has 8192 bytes", nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			cfg := crashedLog(t, n, c.inDatabase)
			f, err := datarepair.Check(cfg.Dir)
			if err != nil || len(f.Damage) > 0 {
				t.Fatalf("before: %v, %v", f, err)
			}
			c.damage(t, cfg.Dir)
			before := readFiles(t, cfg.Dir)
			if f, err = datarepair.Check(cfg.Dir); err != nil || !strings.Contains(strings.Join(f.Damage, "\n"), c.wantDamage) {
				t.Fatalf("found %v, %v", f, err)
			}
			if err := expectOpenError(t, cfg); !errors.Is(err, memberlog.ErrDamaged) {
				t.Errorf("open: %v", err)
			}
			r, err := datarepair.PlanRepair(databaseConfig(cfg))
			if err != nil {
				t.Fatal(err)
			}
			text := strings.Join(r.Describe(), "\n")
			for _, want := range c.wantDropped {
				if !strings.Contains(text, want) {
					t.Errorf("%q is not in %s", want, text)
				}
			}
			if len(c.wantDropped) == 0 && text != "" {
				t.Errorf("drops %s", text)
			}
			after := readFiles(t, cfg.Dir)
			for file := range before {
				if after[file] != before[file] {
					t.Errorf("%s has changed", file)
				}
			}
			rev, err := r.Do(func() (int64, error) {
				m, err := Open(t.Context(), cfg)
				if err != nil {
					return 0, err
				}
				return m.KV().Rev(), m.Close()
			})
			want := int64(c.kept + 1)
			if len(c.wantDropped) > 0 { // the revisions of dropped writes are not used again
				want += datarepair.SkipRevisions
			}
			if err != nil || rev != want {
				t.Fatalf("repaired at revision %d, %v; want %d", rev, err, want)
			}
			if files, err := os.ReadDir(r.Copy); err != nil || len(files) == 0 {
				t.Errorf("the copy has %v, %v", files, err)
			}
			if f, err = datarepair.Check(cfg.Dir); err != nil || len(f.Damage) > 0 {
				t.Errorf("after: %v, %v", f, err)
			}
			for _, useEtcd := range []bool{true, false} {
				s := startMember(t, useEtcd, cfg)
				if got := pairs(t, s.KV(), 0); len(got) != c.kept || got["key000"].value != value(0) {
					t.Errorf("etcd %v: there are %d writes; want %d", useEtcd, len(got), c.kept)
				}
				if rev := s.KV().Rev(); rev < want {
					t.Errorf("etcd %v: goes on at revision %d, before %d", useEtcd, rev, want)
				}
				if first := s.KV().FirstRev(); len(c.wantDropped) > 0 && first < want {
					t.Errorf("etcd %v: a watcher of dropped writes may resume from revision %d", useEtcd, first)
				}
				s.stop(t)
			}
		})
	}
}

// TestRepairNeedsDatabaseOrWholeLog checks that a log without its beginning cannot be repaired without a database.
func TestRepairNeedsDatabaseOrWholeLog(t *testing.T) {
	cfg := config(t.TempDir())
	m := open(t, cfg)
	for i := range 100 {
		mustPut(t, m, fmt.Sprint(i), "1")
	}
	closeMember(t, m)
	files := slices.Clone(logFiles(t, cfg.Dir))
	remove(t, datadir.ToBackendFileName(cfg.Dir))
	writeFile(t, files[0], bytes.Repeat([]byte("garbage "), 8192))
	if _, err := datarepair.PlanRepair(databaseConfig(cfg)); !errors.Is(err, datarepair.ErrUnrepairable) {
		t.Errorf("error %v", err)
	}
}

// databaseConfig returns the configuration of the database of a member.
func databaseConfig(cfg Config) memberdb.Config {
	return memberdb.Config{Dir: cfg.Dir, Quota: cfg.Quota, BatchInterval: cfg.BatchInterval, Log: cfg.Log}
}
