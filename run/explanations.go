package run

import (
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"proa.dev/kinds/kind"
	"proa.dev/kinds/whykind"
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
	a, known := s.scheduling.Recent.Of(pod)
	switch {
	case known:
	case s.schedules.Load():
		return nil, nil
	default: // only the server whose scheduler has placed the Pod knows
		return nil, apierrors.NewServiceUnavailable("the scheduler runs on another server, or is not running")
	}
	out := &why.Attempt{
		Time: a.At, Number: a.Number, Profile: a.Profile, ChosenNode: a.Node, Message: a.Message, Total: a.Total, Examined: a.Examined,
		Feasible: a.Feasible, LeftOut: a.LeftOut, Rest: strings.Join(a.Rest, ", "),
	}
	for _, n := range a.Nodes {
		next := why.NodeReason{Node: n.Node, Chosen: n.Node == a.Node, Plugin: n.Plugin, Reason: strings.Join(n.Reasons, ", ")}
		if n.Scored {
			next.Score = new(n.Score)
		}
		for _, p := range n.Scores {
			next.Scores = append(next.Scores, why.PluginScore{Plugin: p.Plugin, Score: p.Score})
		}
		out.Nodes = append(out.Nodes, next)
	}
	return out, nil
}
