package run

import (
	"proa.dev/hop"
	"proa.dev/kinds/kind"
	"proa.dev/kinds/tracekind"
	"proa.dev/server/tracesource"
)

// traceKinds returns the kinds of traces, which are made of the records of the pipeline.
func (s *Server) traceKinds() []*kind.Def {
	return tracekind.All(&tracesource.Source{Records: s.recorder})
}

// recorder returns the recorder of the pipeline; nil if there is none.
func (s *Server) recorder() *hop.Recorder {
	if s.pipeline == nil {
		return nil
	}
	return s.pipeline.Recorder
}
