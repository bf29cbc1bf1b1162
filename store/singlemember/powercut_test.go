package singlemember

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"go.etcd.io/etcd/server/v3/storage"
	"go.etcd.io/etcd/server/v3/storage/datadir"
	"go.etcd.io/raft/v3/raftpb"

	"proa.dev/store/singlemember/memberlog"
)

// image is the files of a log with what is in them.
type image map[string][]byte

func logImage(t *testing.T, dir string) image {
	t.Helper()
	files := image{}
	for _, f := range logFiles(t, dir) {
		data, err := os.ReadFile(f)
		if errors.Is(err, fs.ErrNotExist) {
			continue // a snapshot made it unnecessary, and it was removed after the folder was read
		}
		if err != nil {
			t.Error(err)
		}
		files[filepath.Base(f)] = data
	}
	return files
}

// newest returns the name of the segment that is written to.
func (i image) newest() string { return slices.Max(slices.Collect(maps.Keys(i))) }

// moment is what there is while the log is written: what was synced before, what is written then, and what writers were
// told until then.
type moment struct {
	synced, written image
	told            *ledger
	// db is the database, marks what the mark has said since it was last synced.
	db    []byte
	marks []string
}

// recorder is a log that records which writes were synced, to simulate power failures.
type recorder struct {
	storage.Storage
	t      *testing.T
	m      *Member
	told   *ledger
	mu     sync.Mutex
	synced image
	marks  []string
	// moments are those that were kept, each with a probability of one in rare.
	moments []moment
	rng     *rand.Rand
	rare    int
}

func (r *recorder) Save(s *raftpb.HardState, e []*raftpb.Entry) error {
	return r.write(len(e) > 0, func() error { return r.Storage.Save(s, e) })
}

func (r *recorder) SaveSnap(s *raftpb.Snapshot) error {
	return r.write(true, func() error { return r.Storage.SaveSnap(s) })
}

func (r *recorder) write(synced bool, do func() error) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := moment{synced: r.synced, told: r.told.copy(), marks: slices.Clone(r.marks)}
	keep := r.rng.IntN(r.rare) == 0 && synced
	if keep {
		now.marks = append(now.marks, r.mark())
		now.db = r.database()
	}
	err := do()
	if !synced || err != nil {
		return err
	}
	if now.written = logImage(r.t, r.m.cfg.Dir); keep {
		r.moments = append(r.moments, now)
	}
	if now.written.newest() != r.synced.newest() {
		r.marks = nil // the mark is synced with the new file
	}
	r.synced = now.written
	r.marks = append(r.marks[max(0, len(r.marks)-5):], r.mark())
	return nil
}

func (r *recorder) mark() string {
	data, err := os.ReadFile(filepath.Join(r.m.cfg.Dir, "member", memberlog.AcknowledgedFile))
	if err != nil {
		r.t.Error(err)
	}
	return string(data)
}

// database copies the database as it is on the disk. The turn is not needed for its lock.
func (r *recorder) database() []byte {
	tx := r.m.backend.BatchTx()
	tx.LockOutsideApply()
	defer tx.Unlock()
	data, err := os.ReadFile(datadir.ToBackendFileName(r.m.cfg.Dir))
	if err != nil {
		r.t.Error(err)
	}
	return data
}

// record makes concurrent writes to a member, and returns the recorded moments.
func record(t *testing.T, cfg Config, seed uint64) []moment {
	t.Helper()
	m := opened(t, cfg)
	rng := rand.New(rand.NewPCG(seed, 3))
	r := &recorder{Storage: m.log.Storage, t: t, m: m, told: newLedger(), rng: rng, rare: 8}
	r.synced = logImage(t, cfg.Dir)
	m.log.Storage = r
	var all sync.WaitGroup
	for w := range 3 {
		all.Go(func() {
			rng := rand.New(rand.NewPCG(seed, uint64(10+w)))
			for i := range 40 {
				// Some values have sectors of zeros of their own.
				value := strings.Repeat([]string{"x", "\x00"}[rng.IntN(8)/7], rng.IntN(4)*rng.IntN(1500))
				if err := r.told.write(t.Context(), m, fmt.Sprint(w, "-", i, value), true); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	m.log.Storage = r.Storage
	return r.moments
}

// cutPower returns what is on the disk when the power is cut in a moment: of each sector that was written since the
// last sync, what was there before or what was written. The log begins a new file only when the one before is synced.
func (now moment) cutPower(rng *rand.Rand) image {
	left := image{}
	newest := now.synced.newest()
	for name, was := range now.synced {
		is, ok := now.written[name]
		if !ok {
			is = was // it was not needed any more
		}
		left[name] = was
		if name == newest && !bytes.Equal(was, is) {
			left[name] = mix(rng, was, is)
		}
	}
	return left
}

// mix combines old and new sectors in one of several ways.
func mix(rng *rand.Rand, was, is []byte) []byte {
	out := make([]byte, max(len(was), len(is)))
	if rng.IntN(2) == 0 {
		out = out[:len(is)]
	}
	copy(out, was)
	var differ []int
	for at := 0; at < len(is); at += memberlog.Sector {
		end := min(at+memberlog.Sector, len(is))
		if at >= len(was) || !bytes.Equal(is[at:end], was[at:min(end, len(was))]) {
			differ = append(differ, at)
		}
	}
	if len(differ) == 0 {
		return out
	}
	chance, some := rng.IntN(4), rng.IntN(len(differ)+1)
	for i, at := range differ {
		keep := false
		switch chance {
		case 0: // in order
			keep = i < some
		case 1: // the last first
			keep = i >= some
		case 2: // all but one
			keep = i != some
		case 3:
			keep = rng.IntN(2) == 0
		}
		if keep {
			copy(out[at:], is[at:min(at+memberlog.Sector, len(is))])
		}
	}
	return out
}

// folder writes what is left to a folder.
func (now moment) folder(t *testing.T, left image, text string) string {
	t.Helper()
	dir := fastDir(t)
	makeDir(t, datadir.ToWALDir(dir))
	makeDir(t, datadir.ToSnapDir(dir))
	for name, data := range left {
		writeFile(t, filepath.Join(datadir.ToWALDir(dir), name), data)
	}
	// Most of the database is reserved, and empty.
	db := datadir.ToBackendFileName(dir)
	writeFile(t, db, bytes.TrimRight(now.db, "\x00"))
	if err := os.Truncate(db, int64(len(now.db))); err != nil {
		t.Fatal(err)
	}
	writeFile(t, filepath.Join(dir, "member", memberlog.AcknowledgedFile), []byte(text))
	return dir
}

// fastDir returns a folder in memory, if there is one, where syncs are fast.
func fastDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "proa-test-")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// afterReboot changes the boot ID of an acknowledgment file, as if the machine had been rebooted.
func afterReboot(t *testing.T, text string) string {
	t.Helper()
	m, err := memberlog.ParseAcknowledgment(text)
	if err != nil {
		t.Fatal(err)
	}
	m.Boot = "00000000-0000-4000-8000-000000000000"
	return string(m.Append(nil))
}

// TestPowerCut cuts the power while the log is written. Whatever the disk has of what was not synced, in whatever order
// it was written: it is never refused, everything that was acknowledged is there, once, and writes go on, from the new
// folder as well.
func TestPowerCut(t *testing.T) {
	refusedOne, cuts := 0, 0
	for seed := range uint64(3) {
		cfg := config(fastDir(t))
		cfg.SnapshotEvery = 50
		for n, now := range record(t, cfg, seed) {
			for try := range uint64(4) {
				rng := rand.New(rand.NewPCG(seed<<32|uint64(n), try))
				after := cfg
				after.Dir = now.folder(t, now.cutPower(rng), afterReboot(t, now.marks[rng.IntN(len(now.marks))]))
				m, err := Open(t.Context(), after)
				if cuts++; err != nil {
					t.Errorf("seed %d, moment %d, try %d: %v", seed, n, try, err)
					refusedOne++
					continue
				}
				now.told.check(t, ours{m})
				rev := m.KV().Rev()
				if got := mustPut(t, m, "after", "1"); got != rev+1 {
					t.Errorf("seed %d, moment %d, try %d: revision %d after %d", seed, n, try, got, rev)
				}
				shut(t, m)
				if try == 0 {
					s := start(t, n%8 == 0, after)
					now.told.check(t, s)
					s.stop(t)
				}
			}
		}
	}
	t.Logf("%d power cuts, %d refused", cuts, refusedOne)
}

// TestPowerCutAndDamage has a disk that, besides, has lost or changed a sector of what was synced before. Nothing that
// was acknowledged is missed in silence: the log is refused, or everything is there.
func TestPowerCutAndDamage(t *testing.T) {
	outcomes := map[string]int{}
	for seed := range uint64(2) {
		cfg := config(fastDir(t))
		cfg.SnapshotEvery = 50
		for n, now := range record(t, cfg, seed) {
			for try := range uint64(6) {
				rng := rand.New(rand.NewPCG(seed<<32|uint64(n), 100+try))
				left := now.cutPower(rng)
				text := now.marks[len(now.marks)-1]
				d := damages[try%uint64(len(damages))]
				names := slices.Sorted(maps.Keys(left))
				file := names[rng.IntN(len(names))]
				if used := len(bytes.TrimRight(now.synced[file], "\x00")); d.do == nil {
					delete(left, file)
				} else {
					left[file] = d.do(slices.Clone(left[file]), rng.IntN(used))
				}
				after := cfg
				// The machine may have been started anew or not; the mark had time to get to the disk.
				if rng.IntN(2) == 0 {
					text = afterReboot(t, text)
				}
				after.Dir = now.folder(t, left, text)
				m, err := Open(t.Context(), after)
				if err != nil {
					outcomes[d.name+" refused"]++
					if !errors.Is(err, memberlog.ErrDamaged) {
						t.Errorf("seed %d, moment %d, try %d, %s of %s: %v", seed, n, try, d.name, file, err)
					}
					continue
				}
				outcomes[d.name+" opened"]++
				now.told.check(t, ours{m})
				shut(t, m)
			}
		}
	}
	t.Log(outcomes)
}
