package run

import (
	"os"
	"path/filepath"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"proa.dev/hop"
	"proa.dev/kinds/kind"
	"proa.dev/kinds/tracekind"
	"proa.dev/kinds/whykind"
	"proa.dev/run/recordfile"
	"proa.dev/run/schedulingattempts"
	"proa.dev/server/apimetrics"
	"proa.dev/server/nodereports"
	"proa.dev/server/state"
	"proa.dev/server/tracesource"
	"proa.dev/server/whysource"
	"proa.dev/why"
)

// traceKinds returns the kinds of traces, which are made of the records of the pipeline, and of what agents report to them.
func (s *Server) traceKinds() []*kind.Def {
	objects := func() *state.State { return s.state }
	traces := &tracesource.Source{Records: s.recorder, Peers: s.peers, Limits: tracesource.NewLimits(objects)}
	return append([]*kind.Def{nodereports.Kind(objects, s.recorder)}, tracekind.All(traces)...)
}

// recordKeeper returns what keeps records for the next start; nil for a cluster that keeps nothing.
func (s *Server) recordKeeper() *recordfile.Keeper {
	if s.InMemory || s.recorder() == nil {
		return nil
	}
	return &recordfile.Keeper{File: filepath.Join(s.DataDir, recordfile.Name), Recorder: s.recorder(), Log: s.log}
}

// recorder returns the recorder of the pipeline; nil if there is none.
func (s *Server) recorder() *hop.Recorder {
	if s.pipeline == nil {
		return nil
	}
	return s.pipeline.Recorder
}

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

// explanationKinds returns the kinds that say why objects are as they are, and what the scheduler found.
func (s *Server) explanationKinds() []*kind.Def {
	objects := func() *state.State { return s.state }
	traces := &tracesource.Source{Records: s.recorder, Peers: s.peers, Limits: tracesource.NewLimits(objects)}
	return whykind.All(&whysource.Source{
		Def:   func(on schema.GroupResource) *kind.Def { return s.state.Def(on) },
		Trace: traces.Trace, Bound: tracesource.WithFewAsks, LastAttempt: s.lastAttempt,
	})
}

// lastAttempt returns what the scheduler found when it last tried to place a Pod; nil if it does not know.
func (s *Server) lastAttempt(pod types.UID) (*why.Attempt, error) {
	return schedulingattempts.Last(s.scheduling.Recent, s.schedules.Load(), pod)
}
