package run

import (
	"os"

	"proa.dev/hop"
	"proa.dev/server/apimetrics"
)

// openRecorder makes the recorder of hops; nil if nothing is recorded. It feeds the histogram of hops.
func (s *Server) openRecorder(counts *apimetrics.Metrics) *hop.Recorder {
	r := hop.NewRecorder(s.TraceRecords)
	if r == nil {
		return nil
	}
	counts.ObserveHops(r)
	if host, err := os.Hostname(); err == nil {
		r.Process = host
	}
	return r
}
