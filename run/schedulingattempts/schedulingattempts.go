// Package schedulingattempts tells what the scheduler of this server found when it last tried to place a Pod, in the words of
// package why.
package schedulingattempts

import (
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"proa.dev/schedule"
	"proa.dev/why"
)

// Last returns the last attempt to place a Pod; nil if there was none. running tells whether the scheduler of this server runs: only
// the server whose scheduler has tried knows.
func Last(recent *schedule.Recent, running bool, pod types.UID) (*why.Attempt, error) {
	a, known := recent.Of(pod)
	switch {
	case known:
	case running:
		return nil, nil
	default:
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
