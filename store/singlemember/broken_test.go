package singlemember

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"go.etcd.io/etcd/server/v3/etcdserver/api/membership"
	"go.etcd.io/etcd/server/v3/etcdserver/apply"
	"go.etcd.io/etcd/server/v3/storage"
	"go.etcd.io/raft/v3/raftpb"
)

// errDisk is the error of a write on a full disk.
var errDisk = fmt.Errorf("the disk has failed: %w", &fs.PathError{Op: "write", Path: "log", Err: syscall.ENOSPC})

// failingLog is a log whose writes go through save and saveSnap, if these are set. They may fail instead of calling do.
type failingLog struct {
	storage.Storage
	n        atomic.Int64
	save     func(n int64, do func() error) error
	saveSnap func(do func() error) error
}

func (b *failingLog) Save(s *raftpb.HardState, e []*raftpb.Entry) error {
	do := func() error { return b.Storage.Save(s, e) }
	if b.save == nil {
		return do()
	}
	return b.save(b.n.Add(1), do)
}

func (b *failingLog) SaveSnap(s *raftpb.Snapshot) error {
	do := func() error { return b.Storage.SaveSnap(s) }
	if b.saveSnap == nil {
		return do()
	}
	return b.saveSnap(do)
}

// failingApplier is an applier whose calls go through do, with the number of the call.
type failingApplier struct {
	apply.UberApplier
	n  atomic.Int64
	do func(n int64, do func() *apply.Result) *apply.Result
}

func (b *failingApplier) Apply(r *apply.InternalRaftRequestWrapper, v3 membership.ShouldApplyV3) *apply.Result {
	return b.do(b.n.Add(1), func() *apply.Result { return b.UberApplier.Apply(r, v3) })
}

// failureModes are the ways in which a member can break at its nth write.
var failureModes = map[string]func(m *Member, nth int64){
	"the log is not written": func(m *Member, nth int64) {
		m.log.Storage = &failingLog{Storage: m.log.Storage, save: func(n int64, do func() error) error {
			if n >= nth {
				return errDisk
			}
			return do()
		}}
	},
	"the log is written and returns an error": func(m *Member, nth int64) {
		m.log.Storage = &failingLog{Storage: m.log.Storage, save: func(n int64, do func() error) error {
			if err := do(); n < nth {
				return err
			}
			return errDisk
		}}
	},
	"a single write of the log fails": func(m *Member, nth int64) {
		m.log.Storage = &failingLog{Storage: m.log.Storage, save: func(n int64, do func() error) error {
			if n == nth {
				return errDisk
			}
			return do()
		}}
	},
	"the snapshot is not written": func(m *Member, _ int64) {
		m.log.Storage = &failingLog{Storage: m.log.Storage, saveSnap: func(func() error) error { return errDisk }}
	},
	"the snapshot is written and returns an error": func(m *Member, _ int64) {
		m.log.Storage = &failingLog{Storage: m.log.Storage, saveSnap: func(do func() error) error { return errors.Join(do(), errDisk) }}
	},
	"an entry is not applied": func(m *Member, nth int64) {
		m.applier = &failingApplier{UberApplier: m.applier, do: func(n int64, do func() *apply.Result) *apply.Result {
			if n == nth {
				panic(errDisk)
			}
			return do()
		}}
	},
	"an entry is applied and fails then": func(m *Member, nth int64) {
		m.applier = &failingApplier{UberApplier: m.applier, do: func(n int64, do func() *apply.Result) *apply.Result {
			r := do()
			if n == nth {
				panic(errDisk)
			}
			return r
		}}
	},
}

// TestMemberBreaksUnderLoad breaks a member under load, and checks that all writers get an error, that reads continue, and
// that all acknowledged writes are there after a restart.
func TestMemberBreaksUnderLoad(t *testing.T) {
	for name, failure := range failureModes {
		for _, nth := range []int64{1, 2, 7} {
			t.Run(fmt.Sprint(name, " ", nth), func(t *testing.T) {
				cfg := config(t.TempDir())
				m := open(t, cfg)
				mustPut(t, m, "first", "1")
				failure(m, nth)
				l := newAckedWrites()
				// No context ends here, so that every writer must get ErrBroken.
				var wg sync.WaitGroup
				for w := range 32 {
					wg.Go(func() {
						for i := range 100 {
							if err := l.write(t.Context(), m, fmt.Sprintf("%d-%d", w, i), true); err != nil {
								if !errors.Is(err, ErrBroken) || !strings.Contains(err.Error(), errDisk.Error()) {
									t.Errorf("error %v", err)
								}
								return
							}
						}
					})
				}
				wg.Wait()
				if l.broken != 32 {
					t.Errorf("%d of 32 writers got ErrBroken", l.broken)
				}
				expectBroken(t, m)
				l.check(t, proaMember{m})
				copied := cfg
				copied.Dir = crashCopy(t, m.Backend(), cfg.Dir)
				closeMember(t, m)
				for useEtcd, c := range map[bool]Config{false: cfg, true: copied} {
					s := startMember(t, useEtcd, c)
					l.check(t, s)
					if p := pairs(t, s.KV(), 0)["first"]; p.value != "1" {
						t.Errorf("the first write is %v", p)
					}
					if _, err := s.Txn(t.Context(), put("last", "1")); err != nil {
						t.Errorf("after a start: %v", err)
					}
					s.stop(t)
				}
			})
		}
	}
}

// expectBroken checks that a member refuses changes with ErrBroken and still serves reads.
func expectBroken(t *testing.T, m *Member) {
	t.Helper()
	ctx := context.WithoutCancel(t.Context())
	_, errTxn := m.Txn(ctx, put("a", "1"))
	_, errGrant := m.Grant(ctx, longTTL)
	for what, err := range map[string]error{
		"txn": errTxn, "grant": errGrant, "compact": m.Compact(ctx, 1), "revoke": m.Revoke(ctx, 1), "settle": m.Settle(ctx),
	} {
		if !errors.Is(err, ErrBroken) || !errors.Is(err, errDisk) && !strings.Contains(err.Error(), errDisk.Error()) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if p := pairs(t, m.KV(), 0)["first"]; p.value != "1" {
		t.Errorf("the first write is %v", p)
	}
}

// TestUnexpectedApplyResults checks that an unexpected result of the applier is an error, and that the next change works.
func TestUnexpectedApplyResults(t *testing.T) {
	for name, result := range map[string]*apply.Result{
		"none": nil, "empty": {}, "another": {Resp: &raftpb.Snapshot{}}, "error": {Err: errDisk},
	} {
		m := open(t, config(t.TempDir()))
		applier := m.applier
		m.applier = &failingApplier{UberApplier: applier, do: func(int64, func() *apply.Result) *apply.Result { return result }}
		if r, err := m.Txn(t.Context(), put("a", "1")); err == nil || r != nil {
			t.Errorf("%s: answered %v, %v", name, r, err)
		}
		m.applier = applier
		mustPut(t, m, "b", "1")
		closeMember(t, m)
	}
}
