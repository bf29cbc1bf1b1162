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
var errDisk = fmt.Errorf("the disk is on fire: %w", &fs.PathError{Op: "write", Path: "log", Err: syscall.ENOSPC})

// badLog is a log whose writes can fail.
type badLog struct {
	storage.Storage
	n        atomic.Int64
	save     func(n int64, do func() error) error
	saveSnap func(do func() error) error
}

func (b *badLog) Save(s *raftpb.HardState, e []*raftpb.Entry) error {
	do := func() error { return b.Storage.Save(s, e) }
	if b.save == nil {
		return do()
	}
	return b.save(b.n.Add(1), do)
}

func (b *badLog) SaveSnap(s *raftpb.Snapshot) error {
	do := func() error { return b.Storage.SaveSnap(s) }
	if b.saveSnap == nil {
		return do()
	}
	return b.saveSnap(do)
}

// badApplier is an applier that can do anything.
type badApplier struct {
	apply.UberApplier
	n  atomic.Int64
	do func(n int64, do func() *apply.Result) *apply.Result
}

func (b *badApplier) Apply(r *apply.InternalRaftRequestWrapper, v3 membership.ShouldApplyV3) *apply.Result {
	return b.do(b.n.Add(1), func() *apply.Result { return b.UberApplier.Apply(r, v3) })
}

// breakages are the ways in which a member can break after some writes.
var breakages = map[string]func(m *Member, nth int64){
	"the log is not written": func(m *Member, nth int64) {
		m.log.Storage = &badLog{Storage: m.log.Storage, save: func(n int64, do func() error) error {
			if n >= nth {
				return errDisk
			}
			return do()
		}}
	},
	"the log is written and says it is not": func(m *Member, nth int64) {
		m.log.Storage = &badLog{Storage: m.log.Storage, save: func(n int64, do func() error) error {
			if err := do(); n < nth {
				return err
			}
			return errDisk
		}}
	},
	"a single write of the log fails": func(m *Member, nth int64) {
		m.log.Storage = &badLog{Storage: m.log.Storage, save: func(n int64, do func() error) error {
			if n == nth {
				return errDisk
			}
			return do()
		}}
	},
	"the snapshot is not written": func(m *Member, _ int64) {
		m.log.Storage = &badLog{Storage: m.log.Storage, saveSnap: func(func() error) error { return errDisk }}
	},
	"the snapshot is written and says it is not": func(m *Member, _ int64) {
		m.log.Storage = &badLog{Storage: m.log.Storage, saveSnap: func(do func() error) error { return errors.Join(do(), errDisk) }}
	},
	"an entry is not applied": func(m *Member, nth int64) {
		m.applier = &badApplier{UberApplier: m.applier, do: func(n int64, do func() *apply.Result) *apply.Result {
			if n == nth {
				panic(errDisk)
			}
			return do()
		}}
	},
	"an entry is applied and fails then": func(m *Member, nth int64) {
		m.applier = &badApplier{UberApplier: m.applier, do: func(n int64, do func() *apply.Result) *apply.Result {
			r := do()
			if n == nth {
				panic(errDisk)
			}
			return r
		}}
	},
}

// TestBroken breaks a member under load, and checks that all writers get an error, that reads continue, and that all
// acknowledged writes are there after a restart.
func TestBroken(t *testing.T) {
	for name, breakage := range breakages {
		for _, nth := range []int64{1, 2, 7} {
			t.Run(fmt.Sprint(name, " ", nth), func(t *testing.T) {
				cfg := config(t.TempDir())
				m := open(t, cfg)
				mustPut(t, m, "first", "1")
				breakage(m, nth)
				l := newLedger()
				// Nobody's context ends here, so that everybody hears of it.
				var all sync.WaitGroup
				for w := range 32 {
					all.Go(func() {
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
				all.Wait()
				if l.broken != 32 {
					t.Errorf("%d of 32 writers were told", l.broken)
				}
				refuses(t, m)
				l.check(t, ours{m})
				copied := cfg
				copied.Dir = crash(t, m.Backend(), cfg.Dir)
				shut(t, m)
				for genuine, c := range map[bool]Config{false: cfg, true: copied} {
					s := start(t, genuine, c)
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

// refuses checks that a member refuses changes and answers reads.
func refuses(t *testing.T, m *Member) {
	t.Helper()
	ctx := context.WithoutCancel(t.Context())
	_, errTxn := m.Txn(ctx, put("a", "1"))
	_, errGrant := m.Grant(ctx, long)
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

// TestOddResult uses an applier with unexpected results.
func TestOddResult(t *testing.T) {
	for name, odd := range map[string]*apply.Result{
		"none": nil, "empty": {}, "another": {Resp: &raftpb.Snapshot{}}, "error": {Err: errDisk},
	} {
		m := open(t, config(t.TempDir()))
		applier := m.applier
		m.applier = &badApplier{UberApplier: applier, do: func(int64, func() *apply.Result) *apply.Result { return odd }}
		if r, err := m.Txn(t.Context(), put("a", "1")); err == nil || r != nil {
			t.Errorf("%s: answered %v, %v", name, r, err)
		}
		m.applier = applier
		mustPut(t, m, "b", "1")
		shut(t, m)
	}
}
