package datafolder

import (
	"context"
	"path/filepath"

	"proa.dev/store"
)

// StoreFindings is the result of a check of the files of the store, in sentences.
type StoreFindings struct {
	Facts, Notes, Damage []string
}

// StoreRepair says what a repair of the store keeps and what it drops.
type StoreRepair struct {
	// Last is the last entry of the log that is kept. Revision is the revision of the store after the repair, and zero
	// before.
	Last     uint64
	Revision int64
	// Dropped says in sentences what is dropped.
	Dropped []string
	// Copy is the folder of the damaged files after the repair.
	Copy string
}

func storeDir(dataDir string) string { return filepath.Join(dataDir, "etcd") }

// CheckStore reads the files of the embedded store of a cluster that is stopped. It changes nothing.
func CheckStore(dataDir string) (StoreFindings, error) {
	f, err := store.Check(storeDir(dataDir))
	if err != nil {
		return StoreFindings{}, err
	}
	return StoreFindings{Facts: f.Facts, Notes: f.Notes, Damage: f.Damage}, nil
}

// PlanStoreRepair returns what a repair would keep and drop.
func PlanStoreRepair(dataDir string) (StoreRepair, error) {
	r, err := store.PlanRepair(storeDir(dataDir))
	if err != nil {
		return StoreRepair{}, err
	}
	return StoreRepair{Last: r.Last, Dropped: r.Describe()}, nil
}

// RepairStore repairs the embedded store of a cluster that is stopped.
func RepairStore(ctx context.Context, dataDir string) (StoreRepair, error) {
	r, revision, err := store.Repair(ctx, storeDir(dataDir))
	if err != nil {
		return StoreRepair{}, err
	}
	return StoreRepair{Last: r.Last, Revision: revision, Dropped: r.Describe(), Copy: r.Copy}, nil
}
