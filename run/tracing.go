package run

import (
	"path/filepath"
	"slices"

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
	"proa.dev/server/peerrecords"
	"proa.dev/server/state"
	"proa.dev/server/tracesource"
	"proa.dev/server/whysource"
	"proa.dev/why"
)

// tracingKinds returns the kinds of traces, which are made of the records of the pipeline, of what agents report to them, and of
// explanations. Traces have one source, so that its limits count for those that explanations read too.
func (s *Server) tracingKinds() []*kind.Def {
	traces := &tracesource.Source{Records: s.recorder, Peers: s.peers, Limits: tracesource.NewLimits(s.objects)}
	return slices.Concat([]*kind.Def{nodereports.Kind(s.objects, s.recorder)}, tracekind.All(traces), s.explanationKinds(traces))
}

func (s *Server) objects() *state.State { return s.state }

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
	r := recordfile.NewRecorder(s.TraceRecords)
	if r != nil {
		r.NoBodies = s.NoTraceBodies
		counts.ObserveHops(r)
	}
	return r
}

// explanationKinds returns the kinds that say why objects are as they are, and what the scheduler found.
func (s *Server) explanationKinds(traces *tracesource.Source) []*kind.Def {
	return whykind.All(&whysource.Source{
		Def:   func(on schema.GroupResource) *kind.Def { return s.state.Def(on) },
		Trace: traces.Trace, Bound: peerrecords.WithFewAsks, LastAttempts: schedulingattempts.OfAll(s.lastAttempt, s.peers),
	})
}

// lastAttempt returns what the scheduler found when it last tried to place a Pod; nil if it does not know.
func (s *Server) lastAttempt(pod types.UID) (*why.Attempt, error) {
	return schedulingattempts.Last(s.scheduling.Recent, s.schedules.Load(), pod)
}
