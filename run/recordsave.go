package run

import (
	"context"
	"path/filepath"
	"time"

	"proa.dev/hop"
	"proa.dev/internal/wait"
	"proa.dev/run/recordfile"
)

// saveInterval is how often the records of hops are saved when there are new ones.
const saveInterval = 30 * time.Second

// recordsFile returns the file of the records of hops in the data folder; empty for a cluster that keeps nothing.
func (s *Server) recordsFile() string {
	if s.InMemory || s.recorder() == nil {
		return ""
	}
	return filepath.Join(s.DataDir, "trace-records")
}

// restoreRecords reads the records that an earlier process of this server has saved.
func (s *Server) restoreRecords() {
	file := s.recordsFile()
	if file == "" {
		return
	}
	records, err := recordfile.Load(file)
	if err != nil {
		s.log.Warn("the records of earlier requests cannot be read, and there are no traces of them", "file", file, "err", err)
		return
	}
	for _, r := range records {
		if r.Open && r.Process == s.recorder().Process {
			r.Open = false // this process knows nothing of the work, and will never say that it has ended
		}
		s.recorder().Restore(r)
	}
}

// saveRecords saves records from time to time until ctx ends.
func (s *Server) saveRecords(ctx context.Context) {
	saved := ""
	for wait.Sleep(ctx, saveInterval) == nil {
		saved = s.saveRecordsOnce(saved)
	}
}

// saveRecordsOnce saves the records, unless they are those that were saved last, and returns what tells them apart.
func (s *Server) saveRecordsOnce(saved string) string {
	file := s.recordsFile()
	if file == "" {
		return ""
	}
	records := s.recorder().Select(isWorthSaving)
	now := recordfile.Fingerprint(records)
	if now == saved || len(records) == 0 {
		return saved
	}
	if err := recordfile.Save(file, records); err != nil {
		s.log.Warn("the records of requests cannot be saved for the next start", "file", file, "err", err)
		return saved
	}
	return now
}

// isWorthSaving leaves out what every cluster does all the time.
func isWorthSaving(r *hop.Record) bool {
	return r.Resource != "leases" && r.Resource != "events" && (r.Resource != "nodes" || r.Subresource != "status")
}
