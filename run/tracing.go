package run

import (
	"path/filepath"

	"proa.dev/hop"
	"proa.dev/kinds/kind"
	"proa.dev/kinds/tracekind"
	"proa.dev/run/recordfile"
	"proa.dev/server/nodereports"
	"proa.dev/server/state"
	"proa.dev/server/tracesource"
)

// traceKinds returns the kinds of traces, which are made of the records of the pipeline, and of what agents report to them.
func (s *Server) traceKinds() []*kind.Def {
	reports := nodereports.Kind(func() *state.State { return s.state }, s.recorder)
	return append([]*kind.Def{reports}, tracekind.All(&tracesource.Source{Records: s.recorder})...)
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
