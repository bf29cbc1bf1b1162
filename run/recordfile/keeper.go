package recordfile

import (
	"context"
	"log/slog"
	"os"
	"time"

	"proa.dev/hop"
	"proa.dev/internal/wait"
)

// NewRecorder returns a recorder of so many records, whose records name this machine; nil if nothing is recorded.
func NewRecorder(limit int) *hop.Recorder {
	r := hop.NewRecorder(limit)
	if r == nil {
		return nil
	}
	if host, err := os.Hostname(); err == nil {
		r.Process = host
	}
	return r
}

// interval is how often records are saved when there are new ones.
const interval = 30 * time.Second

// Keeper keeps the records of a recorder in a file. All methods of a nil Keeper do nothing.
type Keeper struct {
	File     string
	Recorder *hop.Recorder
	Log      *slog.Logger
	saved    uint64 // how many changes of the recorder are in the file
}

// Restore adds the records that an earlier process has saved to the recorder.
func (k *Keeper) Restore() {
	if k == nil {
		return
	}
	records, err := Load(k.File)
	if err != nil {
		k.Log.Warn("the records of earlier requests cannot be read, and there are no traces of them", "file", k.File, "err", err)
		return
	}
	for _, r := range records {
		if r.Open && r.Process == k.Recorder.Process {
			r.Open = false // this process knows nothing of the work, and will never say that it has ended
		}
		k.Recorder.Restore(r)
	}
	k.saved = k.Recorder.Changes()
}

// Run saves the records from time to time until ctx ends, and then a last time.
func (k *Keeper) Run(ctx context.Context) {
	if k == nil {
		return
	}
	for wait.Sleep(ctx, interval) == nil {
		k.Save()
	}
	k.Save()
}

// Save saves the records, unless nothing was recorded since they were saved last.
func (k *Keeper) Save() {
	if k == nil {
		return
	}
	changes := k.Recorder.Changes() // what is recorded from now on may be saved too, and is saved again
	if changes == k.saved {
		return
	}
	records := k.Recorder.Select(isWorthSaving)
	if err := Save(k.File, records); err != nil {
		k.Log.Warn("the records of requests cannot be saved for the next start", "file", k.File, "err", err)
		return
	}
	k.saved = changes
}

// isWorthSaving leaves out what every cluster does all the time.
func isWorthSaving(r *hop.Record) bool {
	return r.Resource != "leases" && r.Resource != "events" && (r.Resource != "nodes" || r.Subresource != "status")
}
