package run

import (
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"proa.dev/kinds/kind"
	"proa.dev/kinds/whykind"
	"proa.dev/run/schedulingattempts"
	"proa.dev/server/tracesource"
	"proa.dev/server/whysource"
	"proa.dev/why"
)

// explanationKinds returns the kinds that say why objects are as they are, and what the scheduler found.
func (s *Server) explanationKinds() []*kind.Def {
	traces := &tracesource.Source{Records: s.recorder}
	return whykind.All(&whysource.Source{
		Def:   func(on schema.GroupResource) *kind.Def { return s.state.Def(on) },
		Trace: traces.Trace, LastAttempt: s.lastAttempt,
	})
}

// lastAttempt returns what the scheduler found when it last tried to place a Pod; nil if it does not know.
func (s *Server) lastAttempt(pod types.UID) (*why.Attempt, error) {
	return schedulingattempts.Last(s.scheduling.Recent, s.schedules.Load(), pod)
}
