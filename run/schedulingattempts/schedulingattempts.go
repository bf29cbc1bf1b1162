// Package schedulingattempts tells what the scheduler of this server found when it last tried to place a Pod, in the words of
// package why, or what that of another server found.
package schedulingattempts

import (
	"context"
	"maps"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"proa.dev/schedule"
	"proa.dev/server/peerrecords"
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

// OfAll returns a function that returns the last attempts to place Pods, of whichever server runs the scheduler; Pods that none has tried
// to place are left out. Of several Pods the nodes may be left out. local is Last of this server.
func OfAll(local func(types.UID) (*why.Attempt, error),
	peers *peerrecords.Peers) func(context.Context, []types.UID) (map[types.UID]*why.Attempt, error) {
	return func(ctx context.Context, pods []types.UID) (map[types.UID]*why.Attempt, error) {
		out := map[types.UID]*why.Attempt{}
		var elsewhere []types.UID
		var err error
		for _, pod := range pods {
			a, notRunning := local(pod)
			if a != nil {
				out[pod] = a
			} else if notRunning != nil {
				elsewhere, err = append(elsewhere, pod), notRunning
			}
		}
		if err == nil {
			return out, nil
		}
		found, isKnown, missing := peers.Attempts(ctx, elsewhere)
		maps.Copy(out, found)
		if isKnown || len(found) == len(elsewhere) {
			return out, nil
		}
		if len(missing) == 0 {
			return out, err
		}
		texts := make([]string, 0, len(missing))
		for _, m := range missing {
			texts = append(texts, m.Text)
		}
		silent := strings.Join(texts, ", ")
		return out, apierrors.NewServiceUnavailable("the scheduler runs on another server, which did not answer: " + silent)
	}
}
