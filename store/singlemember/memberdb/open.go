package memberdb

import (
	"time"

	bolt "go.etcd.io/bbolt"
	"go.etcd.io/etcd/server/v3/etcdserver/cindex"
	"go.etcd.io/etcd/server/v3/storage"
	"go.etcd.io/etcd/server/v3/storage/backend"
	"go.etcd.io/etcd/server/v3/storage/datadir"
	"go.uber.org/zap"
)

// Config configures the database of a member.
type Config struct {
	// Dir is the data folder of the member.
	Dir string
	// Quota is the size at which changes are refused. It determines the size of the memory map.
	Quota int64
	// BatchInterval is how long changes are collected before they are committed to the file.
	BatchInterval time.Duration
	Log           *zap.Logger
	// OnCommit, if not nil, is called when a commit begins.
	OnCommit func()
}

// Database is an open database, with the index of the last entry of the log that it contains.
type Database struct {
	backend.Backend
	Index cindex.ConsistentIndexer
	Hooks *storage.BackendHooks
}

// Open opens the database of a member, and creates it if there is none. It panics if the file is damaged. The caller
// has to create the meta bucket, which is separate so that the database can be closed if that panics.
func Open(cfg Config) *Database {
	db := &Database{Index: cindex.NewConsistentIndex(nil)}
	db.Hooks = storage.NewBackendHooks(cfg.Log, db.Index)
	b := backend.DefaultBackendConfig(cfg.Log)
	b.Path = datadir.ToBackendFileName(cfg.Dir)
	b.BatchInterval = cfg.BatchInterval
	b.BackendFreelistType = bolt.FreelistMapType
	b.MmapSize = uint64(cfg.Quota + cfg.Quota/10)
	b.Hooks = backend.NewHooks(func(tx backend.UnsafeReadWriter) {
		if cfg.OnCommit != nil {
			cfg.OnCommit()
		}
		db.Hooks.OnPreCommitUnsafe(tx)
	})
	db.Backend = backend.New(b)
	db.Index.SetBackend(db.Backend)
	return db
}
