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

// logImage maps the names of the segments of a log to their content.
type logImage map[string][]byte

func readLogImage(t *testing.T, dir string) logImage {
	t.Helper()
	files := logImage{}
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

// newest returns the name of the newest segment, to which entries are appended.
func (i logImage) newest() string { return slices.Max(slices.Collect(maps.Keys(i))) }

// crashPoint is the state at a write to the log: the log as it was synced before, the log with the write, and the writes
// that were acknowledged before.
type crashPoint struct {
	synced, written logImage
	acked           *ackedWrites
	// db is the database. acks are the contents that the acknowledgment file has had since it was last synced.
	db   []byte
	acks []string
}

// recordingLog is a log that records crash points, to simulate power failures.
type recordingLog struct {
	storage.Storage
	t      *testing.T
	m      *Member
	acked  *ackedWrites
	mu     sync.Mutex
	synced logImage
	acks   []string
	// points are the recorded crash points: about one in oneIn writes.
	points []crashPoint
	rng    *rand.Rand
	oneIn  int
}

func (r *recordingLog) Save(s *raftpb.HardState, e []*raftpb.Entry) error {
	return r.write(len(e) > 0, func() error { return r.Storage.Save(s, e) })
}

func (r *recordingLog) SaveSnap(s *raftpb.Snapshot) error {
	return r.write(true, func() error { return r.Storage.SaveSnap(s) })
}

func (r *recordingLog) write(synced bool, do func() error) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := crashPoint{synced: r.synced, acked: r.acked.copy(), acks: slices.Clone(r.acks)}
	keep := r.rng.IntN(r.oneIn) == 0 && synced
	if keep {
		now.acks = append(now.acks, r.readAck())
		now.db = r.database()
	}
	err := do()
	if !synced || err != nil {
		return err
	}
	if now.written = readLogImage(r.t, r.m.cfg.Dir); keep {
		r.points = append(r.points, now)
	}
	if now.written.newest() != r.synced.newest() {
		r.acks = nil // the acknowledgment file is synced when a new segment begins
	}
	r.synced = now.written
	r.acks = append(r.acks[max(0, len(r.acks)-5):], r.readAck())
	return nil
}

func (r *recordingLog) readAck() string {
	data, err := os.ReadFile(filepath.Join(r.m.cfg.Dir, "member", memberlog.AcknowledgedFile))
	if err != nil {
		r.t.Error(err)
	}
	return string(data)
}

// database returns the content of the database file. It takes the lock of the database with LockOutsideApply, because no
// entry is being applied.
func (r *recordingLog) database() []byte {
	tx := r.m.backend.BatchTx()
	tx.LockOutsideApply()
	defer tx.Unlock()
	data, err := os.ReadFile(datadir.ToBackendFileName(r.m.cfg.Dir))
	if err != nil {
		r.t.Error(err)
	}
	return data
}

// recordCrashPoints makes concurrent writes to a member, and returns the recorded crash points.
func recordCrashPoints(t *testing.T, cfg Config, seed uint64) []crashPoint {
	t.Helper()
	m := openWithCleanup(t, cfg)
	rng := rand.New(rand.NewPCG(seed, 3))
	r := &recordingLog{Storage: m.log.Storage, t: t, m: m, acked: newAckedWrites(), rng: rng, oneIn: 8}
	r.synced = readLogImage(t, cfg.Dir)
	m.log.Storage = r
	var wg sync.WaitGroup
	for w := range 3 {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(seed, uint64(10+w)))
			for i := range 40 {
				// Some values contain whole sectors of zeros.
				value := strings.Repeat([]string{"x", "\x00"}[rng.IntN(8)/7], rng.IntN(4)*rng.IntN(1500))
				if err := r.acked.write(t.Context(), m, fmt.Sprint(w, "-", i, value), true); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	m.log.Storage = r.Storage
	return r.points
}

// afterPowerCut returns the log as it can be on the disk after a power failure: each sector that was written since the last
// sync has its old or its new content. Only the newest segment has such sectors, because a new one is begun only after the
// one before was synced.
func (now crashPoint) afterPowerCut(rng *rand.Rand) logImage {
	disk := logImage{}
	newest := now.synced.newest()
	for name, before := range now.synced {
		after, ok := now.written[name]
		if !ok {
			after = before // the segment was purged meanwhile
		}
		disk[name] = before
		if name == newest && !bytes.Equal(before, after) {
			disk[name] = mixSectors(rng, before, after)
		}
	}
	return disk
}

// mixSectors returns a file in which some of the changed sectors have their new content, chosen in one of several ways.
func mixSectors(rng *rand.Rand, before, after []byte) []byte {
	out := make([]byte, max(len(before), len(after)))
	if rng.IntN(2) == 0 {
		out = out[:len(after)]
	}
	copy(out, before)
	var changed []int
	for at := 0; at < len(after); at += memberlog.Sector {
		end := min(at+memberlog.Sector, len(after))
		if at >= len(before) || !bytes.Equal(after[at:end], before[at:min(end, len(before))]) {
			changed = append(changed, at)
		}
	}
	if len(changed) == 0 {
		return out
	}
	mode, boundary := rng.IntN(4), rng.IntN(len(changed)+1)
	for i, at := range changed {
		keep := false
		switch mode {
		case 0: // in order
			keep = i < boundary
		case 1: // the last first
			keep = i >= boundary
		case 2: // all but one
			keep = i != boundary
		case 3:
			keep = rng.IntN(2) == 0
		}
		if keep {
			copy(out[at:], after[at:min(at+memberlog.Sector, len(after))])
		}
	}
	return out
}

// writeFolder creates a data folder with the given log, the database of the crash point, and ack as the acknowledgment file.
func (now crashPoint) writeFolder(t *testing.T, disk logImage, ack string) string {
	t.Helper()
	dir := fastDir(t)
	makeDir(t, datadir.ToWALDir(dir))
	makeDir(t, datadir.ToSnapDir(dir))
	for name, data := range disk {
		writeFile(t, filepath.Join(datadir.ToWALDir(dir), name), data)
	}
	// Most of the file is preallocated and zero, and need not be written.
	db := datadir.ToBackendFileName(dir)
	writeFile(t, db, bytes.TrimRight(now.db, "\x00"))
	if err := os.Truncate(db, int64(len(now.db))); err != nil {
		t.Fatal(err)
	}
	writeFile(t, filepath.Join(dir, "member", memberlog.AcknowledgedFile), []byte(ack))
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

// TestPowerCut opens data as a power failure can leave it, with any of the unsynced sectors written or not. It must never be
// refused, every acknowledged write must be there exactly once, and further writes must work, also after another start.
func TestPowerCut(t *testing.T) {
	refused, cuts := 0, 0
	for seed := range uint64(3) {
		cfg := config(fastDir(t))
		cfg.SnapshotEvery = 50
		for n, now := range recordCrashPoints(t, cfg, seed) {
			for try := range uint64(4) {
				rng := rand.New(rand.NewPCG(seed<<32|uint64(n), try))
				after := cfg
				after.Dir = now.writeFolder(t, now.afterPowerCut(rng), afterReboot(t, now.acks[rng.IntN(len(now.acks))]))
				m, err := Open(t.Context(), after)
				if cuts++; err != nil {
					t.Errorf("seed %d, crash point %d, try %d: %v", seed, n, try, err)
					refused++
					continue
				}
				now.acked.check(t, proaMember{m})
				rev := m.KV().Rev()
				if got := mustPut(t, m, "after", "1"); got != rev+1 {
					t.Errorf("seed %d, crash point %d, try %d: revision %d after %d", seed, n, try, got, rev)
				}
				closeMember(t, m)
				if try == 0 {
					s := startMember(t, n%8 == 0, after)
					now.acked.check(t, s)
					s.stop(t)
				}
			}
		}
	}
	t.Logf("%d power cuts, %d refused", cuts, refused)
}

// TestPowerCutAndDamage opens data after a power failure on a disk that has also lost or changed synced sectors. No
// acknowledged write may be missing without an error: the log must be refused, or have all of them.
func TestPowerCutAndDamage(t *testing.T) {
	outcomes := map[string]int{}
	for seed := range uint64(2) {
		cfg := config(fastDir(t))
		cfg.SnapshotEvery = 50
		for n, now := range recordCrashPoints(t, cfg, seed) {
			for try := range uint64(6) {
				rng := rand.New(rand.NewPCG(seed<<32|uint64(n), 100+try))
				disk := now.afterPowerCut(rng)
				text := now.acks[len(now.acks)-1]
				d := damages[try%uint64(len(damages))]
				names := slices.Sorted(maps.Keys(disk))
				file := names[rng.IntN(len(names))]
				if used := len(bytes.TrimRight(now.synced[file], "\x00")); d.do == nil {
					delete(disk, file)
				} else {
					disk[file] = d.do(slices.Clone(disk[file]), rng.IntN(used))
				}
				after := cfg
				// The machine may have been rebooted or not; the newest acknowledgment is on the disk.
				if rng.IntN(2) == 0 {
					text = afterReboot(t, text)
				}
				after.Dir = now.writeFolder(t, disk, text)
				m, err := Open(t.Context(), after)
				if err != nil {
					outcomes[d.name+" refused"]++
					if !errors.Is(err, memberlog.ErrDamaged) {
						t.Errorf("seed %d, crash point %d, try %d, %s of %s: %v", seed, n, try, d.name, file, err)
					}
					continue
				}
				outcomes[d.name+" opened"]++
				now.acked.check(t, proaMember{m})
				closeMember(t, m)
			}
		}
	}
	t.Log(outcomes)
}
