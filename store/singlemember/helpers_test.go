package singlemember

import (
	"context"
	"errors"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/pkg/v3/traceutil"
	"go.etcd.io/etcd/server/v3/etcdserver"
	"go.etcd.io/etcd/server/v3/lease"
	"go.etcd.io/etcd/server/v3/storage/backend"
	"go.etcd.io/etcd/server/v3/storage/mvcc"
	"go.etcd.io/etcd/server/v3/storage/wal"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"proa.dev/store/etcdtest"
)

// TestMain makes the files of the log small, so that tests use several.
func TestMain(m *testing.M) {
	wal.SegmentSizeBytes = 64 << 10
	os.Exit(m.Run())
}

// longTTL is the TTL of leases that do not expire during the test.
const longTTL = 1 << 20

func config(dir string) Config {
	return Config{
		Dir: dir, Name: "default", PeerURL: "http://localhost:2380", Token: "etcd-cluster",
		Quota: 1 << 30, MaxRequest: 3 << 19, BatchInterval: 20 * time.Millisecond, SnapshotEvery: 20, SnapshotBytes: 1 << 30,
		WriteTimeout: 30 * time.Second,
		// As in the store while a member starts: a fatal log entry panics.
		Log: zap.New(zapcore.NewNopCore(), zap.WithFatalHook(zapcore.WriteThenPanic)),
	}
}

// open opens a member that the test closes itself.
func open(t testing.TB, cfg Config) *Member {
	t.Helper()
	m, err := Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// openWithCleanup opens a member and closes it when the test ends.
func openWithCleanup(t testing.TB, cfg Config) *Member {
	t.Helper()
	m := open(t, cfg)
	t.Cleanup(func() { closeMember(t, m) })
	return m
}

func closeMember(t testing.TB, m *Member) {
	t.Helper()
	if err := m.Close(); err != nil {
		t.Errorf("close: %v", err)
	}
}

// put returns a transaction that puts one key without a condition.
func put(key, value string) *pb.TxnRequest {
	return &pb.TxnRequest{Success: []*pb.RequestOp{putOp(key, value, 0)}}
}

func putOp(key, value string, leaseID int64) *pb.RequestOp {
	return &pb.RequestOp{Request: &pb.RequestOp_RequestPut{RequestPut: &pb.PutRequest{Key: []byte(key), Value: []byte(value),
		Lease: leaseID}}}
}

func deleteOp(key, end string) *pb.RequestOp {
	return &pb.RequestOp{Request: &pb.RequestOp_RequestDeleteRange{RequestDeleteRange: &pb.DeleteRangeRequest{Key: []byte(key),
		RangeEnd: bytesOf(end)}}}
}

func rangeOp(key, end string, rev int64) *pb.RequestOp {
	return &pb.RequestOp{Request: &pb.RequestOp_RequestRange{RequestRange: &pb.RangeRequest{Key: []byte(key), RangeEnd: bytesOf(end),
		Revision: rev}}}
}

// bytesOf returns nil for an empty string, as decoding an entry of the log does.
func bytesOf(s string) []byte {
	if s == "" {
		return nil
	}
	return []byte(s)
}

// modIs returns the condition that a key was last changed at a revision.
func modIs(key string, rev int64) *pb.Compare {
	return &pb.Compare{Key: []byte(key), Target: pb.Compare_MOD, Result: pb.Compare_EQUAL,
		TargetUnion: &pb.Compare_ModRevision{ModRevision: rev}}
}

// mustPut puts a key and returns the revision. It may be called from any goroutine.
func mustPut(t testing.TB, m *Member, key, value string) int64 {
	t.Helper()
	r, err := m.Txn(t.Context(), put(key, value))
	if err != nil {
		t.Errorf("put %s: %v", key, err)
		return 0
	}
	return r.Header.Revision
}

// pair is the value and the metadata of a key.
type pair struct {
	value                string
	mod, create, version int64
	lease                int64
}

// pairs returns all keys at a revision; 0 is the current one.
func pairs(t testing.TB, kv mvcc.KV, rev int64) map[string]pair {
	t.Helper()
	tx := kv.Read(mvcc.ConcurrentReadTxMode, traceutil.TODO())
	defer tx.End()
	r, err := tx.Range(context.Background(), []byte{0}, []byte{}, mvcc.RangeOptions{Rev: rev})
	if err != nil {
		t.Fatalf("read at revision %d: %v", rev, err)
	}
	all := map[string]pair{}
	for _, kv := range r.KVs {
		all[string(kv.Key)] = pair{string(kv.Value), kv.ModRevision, kv.CreateRevision, kv.Version, kv.Lease}
	}
	return all
}

// server is a member of this package or an etcd server, so that tests can run with both.
type server interface { //nolint:interfacebloat // tests use all of these operations of both implementations
	Txn(context.Context, *pb.TxnRequest) (*pb.TxnResponse, error)
	KV() mvcc.WatchableKV
	Backend() backend.Backend
	Alarms() []*pb.AlarmMember
	grant(ctx context.Context, ttl, id int64) (*pb.LeaseGrantResponse, error)
	revoke(ctx context.Context, id int64) error
	compact(ctx context.Context, rev int64) error
	leases(t testing.TB) map[int64][]string
	stop(t testing.TB)
}

// proaMember is a member of this package as a server.
type proaMember struct{ *Member }

// grant ignores the id, because a member chooses the IDs of leases itself.
func (o proaMember) grant(ctx context.Context, ttl, _ int64) (*pb.LeaseGrantResponse, error) {
	return o.Grant(ctx, ttl)
}

func (o proaMember) revoke(ctx context.Context, id int64) error {
	return o.Revoke(ctx, lease.LeaseID(id))
}

func (o proaMember) compact(ctx context.Context, rev int64) error { return o.Compact(ctx, rev) }

func (o proaMember) leases(testing.TB) map[int64][]string {
	all := map[int64][]string{}
	for _, l := range o.Leases() {
		all[int64(l.ID)] = slices.Sorted(slices.Values(l.Keys()))
	}
	return all
}

func (o proaMember) stop(t testing.TB) {
	t.Helper()
	closeMember(t, o.Member)
}

// etcdMember is etcd's own server as a server.
type etcdMember struct{ *etcdserver.EtcdServer }

func (g etcdMember) grant(ctx context.Context, ttl, id int64) (*pb.LeaseGrantResponse, error) {
	return g.LeaseGrant(ctx, &pb.LeaseGrantRequest{TTL: ttl, ID: id})
}

func (g etcdMember) revoke(ctx context.Context, id int64) error {
	_, err := g.LeaseRevoke(ctx, &pb.LeaseRevokeRequest{ID: id})
	return err
}

func (g etcdMember) compact(ctx context.Context, rev int64) error {
	_, err := g.EtcdServer.Compact(ctx, &pb.CompactionRequest{Revision: rev})
	return err
}

func (g etcdMember) leases(t testing.TB) map[int64][]string {
	t.Helper()
	r, err := g.LeaseLeases(context.Background(), &pb.LeaseLeasesRequest{})
	if err != nil {
		t.Fatal(err)
	}
	all := map[int64][]string{}
	for _, l := range r.Leases {
		ttl, err := g.LeaseTimeToLive(context.Background(), &pb.LeaseTimeToLiveRequest{ID: l.ID, Keys: true})
		if err != nil {
			t.Fatal(err)
		}
		keys := make([]string, 0, len(ttl.Keys))
		for _, k := range ttl.Keys {
			keys = append(keys, string(k))
		}
		all[l.ID] = slices.Sorted(slices.Values(keys))
	}
	return all
}

func (g etcdMember) stop(testing.TB) { g.HardStop() }

// startMember starts etcd's own server or a member of this package.
func startMember(t testing.TB, useEtcd bool, cfg Config) server {
	t.Helper()
	if useEtcd {
		return etcdMember{etcdtest.Start(t, cfg.Dir, cfg.SnapshotEvery)}
	}
	return proaMember{open(t, cfg)}
}

// crashCopy copies the folder of a running member as a crash would leave it now, and returns the copy. It keeps the database
// from being committed meanwhile, because a copy of a half written database is not what a crash leaves.
func crashCopy(t testing.TB, b backend.Backend, dir string) string {
	t.Helper()
	tx := b.BatchTx()
	tx.LockOutsideApply()
	defer tx.Unlock()
	return copyDir(t, dir)
}

func copyDir(t testing.TB, dir string) string {
	t.Helper()
	for range 20 {
		to := t.TempDir()
		err := copyFiles(dir, to)
		if err == nil {
			return to
		}
		// Segments of the log may be renamed or purged during the copy. A copy without one of them would be inconsistent, so
		// it is made again.
		if !errors.Is(err, fs.ErrNotExist) {
			t.Fatal(err)
		}
	}
	t.Fatal("files of the folder disappear during every copy")
	return ""
}

func copyFiles(from, to string) error {
	return filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		if d.IsDir() {
			return os.MkdirAll(filepath.Join(to, rel), 0o700)
		}
		data, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) && strings.HasSuffix(rel, ".tmp") {
			return nil
		}
		if err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(to, rel), data, 0o600)
	})
}

// model is the expected content of a store.
type model struct {
	rng            *rand.Rand
	rev, compacted int64
	keys           map[string]pair
	leases         map[int64]bool
	// history maps each revision that is not compacted to all keys at that revision.
	history map[int64]map[string]pair
	n       int
}

func newModel(seed uint64) *model {
	m := &model{rng: rand.New(rand.NewPCG(seed, 1)), rev: 1, compacted: 0, keys: map[string]pair{}, leases: map[int64]bool{},
		history: map[int64]map[string]pair{}}
	m.history[1] = map[string]pair{}
	return m
}

// apply applies a list of operations, with a new revision if anything changes.
func (m *model) apply(ops []*pb.RequestOp) {
	next, changed := m.rev+1, false
	for _, op := range ops {
		if p := op.GetRequestPut(); p != nil {
			previous := m.keys[string(p.Key)]
			now := pair{string(p.Value), next, previous.create, previous.version + 1, p.Lease}
			if previous.version == 0 {
				now.create = next
			}
			m.keys[string(p.Key)], changed = now, true
		}
		if d := op.GetRequestDeleteRange(); d != nil {
			for key := range m.keys {
				if key == string(d.Key) || (len(d.RangeEnd) > 0 && key >= string(d.Key) && key < string(d.RangeEnd)) {
					delete(m.keys, key)
					changed = true
				}
			}
		}
	}
	if changed {
		m.rev = next
		m.history[next] = maps.Clone(m.keys)
	}
}

func (m *model) randomKey() string { return "k" + strconv.Itoa(m.rng.IntN(20)) }

func (m *model) randomLease() int64 {
	ids := slices.Sorted(maps.Keys(m.leases))
	if len(ids) == 0 {
		return 0
	}
	return ids[m.rng.IntN(len(ids))]
}

// randomOps returns a few changes of different keys.
func (m *model) randomOps() []*pb.RequestOp {
	m.n++
	value := strconv.Itoa(m.n)
	switch m.rng.IntN(6) {
	case 0:
		return []*pb.RequestOp{deleteOp(m.randomKey(), "")}
	case 1:
		return []*pb.RequestOp{deleteOp("k1", "k13")}
	case 2:
		return []*pb.RequestOp{putOp("a"+m.randomKey(), value, 0), putOp("b"+m.randomKey(), strings.Repeat(value, m.rng.IntN(2000)), 0),
			deleteOp("c"+m.randomKey(), "")}
	case 3:
		return []*pb.RequestOp{putOp(m.randomKey(), value, m.randomLease())}
	}
	return []*pb.RequestOp{putOp(m.randomKey(), value, 0)}
}

// step makes one random change to both the store and the model.
func (m *model) step(t testing.TB, s server) {
	t.Helper()
	ctx := t.Context()
	switch what := m.rng.IntN(40); {
	case what == 0 && len(m.leases) < 4:
		r, err := s.grant(ctx, longTTL, 0)
		if err != nil || r.ID <= 0 || m.leases[r.ID] {
			t.Fatalf("grant: %v, %v; there are %v", r, err, m.leases)
		}
		m.leases[r.ID] = true
	case what == 1 && len(m.leases) > 0:
		id := m.randomLease()
		if err := s.revoke(ctx, id); err != nil {
			t.Fatalf("revoke %d: %v", id, err)
		}
		delete(m.leases, id)
		var gone []*pb.RequestOp
		for key, p := range m.keys {
			if p.lease == id {
				gone = append(gone, deleteOp(key, ""))
			}
		}
		m.apply(gone)
	case what == 2 && m.rev > m.compacted+10:
		rev := m.compacted + 1 + m.rng.Int64N(m.rev-m.compacted)
		if err := s.compact(ctx, rev); err != nil {
			t.Fatalf("compact at %d: %v", rev, err)
		}
		for r := m.compacted; r < rev; r++ {
			delete(m.history, r)
		}
		m.compacted = rev
	default:
		m.txn(t, s)
	}
	if now := s.KV().Rev(); now != m.rev {
		t.Fatalf("the store is at revision %d and not at %d", now, m.rev)
	}
}

func (m *model) txn(t testing.TB, s server) {
	t.Helper()
	key := m.randomKey()
	rev, holds := m.keys[key].mod, true
	if m.rng.IntN(3) == 0 {
		rev, holds = rev+1, false
	}
	r := &pb.TxnRequest{Compare: []*pb.Compare{modIs(key, rev)}, Success: m.randomOps(), Failure: []*pb.RequestOp{rangeOp(key, "", 0)}}
	if m.rng.IntN(4) == 0 {
		r.Failure = m.randomOps()
	}
	resp, err := s.Txn(t.Context(), r)
	if err != nil {
		t.Fatalf("%v: %v", r, err)
	}
	if holds {
		m.apply(r.Success)
	} else {
		m.apply(r.Failure)
	}
	if resp.Succeeded != holds || resp.Header.Revision != m.rev {
		t.Fatalf("%v: answered %v; want %v at revision %d", r, resp, holds, m.rev)
	}
}

// check compares the keys, their history and the leases of the store with the model.
func (m *model) check(t testing.TB, s server) {
	t.Helper()
	if now, first := s.KV().Rev(), s.KV().FirstRev(); now != m.rev || max(first, 0) != m.compacted {
		t.Fatalf("the store is at revision %d, compacted at %d; want %d and %d", now, first, m.rev, m.compacted)
	}
	m.expectEqual(t, pairs(t, s.KV(), 0), m.keys)
	revs := slices.Sorted(maps.Keys(m.history))
	for range 3 {
		rev := revs[m.rng.IntN(len(revs))]
		m.expectEqual(t, pairs(t, s.KV(), rev), m.history[rev])
	}
	want := map[int64][]string{}
	for id := range m.leases {
		want[id] = []string{}
		for key, p := range m.keys {
			if p.lease == id {
				want[id] = append(want[id], key)
			}
		}
		slices.Sort(want[id])
	}
	if got := s.leases(t); !maps.EqualFunc(got, want, slices.Equal[[]string]) {
		t.Fatalf("leases %v; want %v", got, want)
	}
}

func (m *model) expectEqual(t testing.TB, got, want map[string]pair) {
	t.Helper()
	for key := range want {
		if got[key] != want[key] {
			t.Errorf("%s is %.80v; want %.80v", key, got[key], want[key])
		}
	}
	for key := range got {
		if want[key].version == 0 {
			t.Errorf("%s is there: %.80v", key, got[key])
		}
	}
	if t.Failed() {
		t.FailNow()
	}
}
