// Package servicetrace reads from the traces of a Service and its EndpointSlices what became of them at hop 12: which nodes have programmed
// them, and when a Pod answered a client first.
package servicetrace

import (
	"slices"
	"strings"
	"time"

	"proa.dev/hop"
	"proa.dev/trace"
	"proa.dev/why/answer"
)

// HiddenNode stands in traces for nodes that the reader may not get.
const HiddenNode = "(hidden)"

// Programming is how far a node is with the rules for an EndpointSlice.
type Programming struct {
	Done  bool
	Err   string
	Since time.Time
}

// ReadProgrammed takes from a trace how each node did with the objects of these names at last.
func ReadProgrammed(t *trace.Trace, names []string, state map[string]Programming) {
	for i := range t.Spans {
		s := &t.Spans[i]
		node, ok := strings.CutPrefix(s.Actor, "system:node:")
		if !ok || s.Hop != int(hop.Network) || s.Parent != "" || s.IsAnswer() ||
			!slices.Contains(names, trace.Name(s.Object)) {
			continue
		}
		before, known := state[node]
		if known && (s.Start.Before(before.Since) || !before.Done && node == HiddenNode) { // HiddenNode stands for several nodes
			continue
		}
		state[node] = Programming{Done: !s.Open && s.Error == "", Err: answer.Sentence(s.Error), Since: s.Start}
	}
}

// FirstAnswer is the first answer of a Pod of a Service to a client that is known.
type FirstAnswer struct {
	Pod     string
	Through string // as in ", through 10.96.0.1:80"; may be empty
	At      time.Time
}

// Read takes from a trace the first answer of an endpoint of one of the objects of these names, if it is earlier.
func (f *FirstAnswer) Read(t *trace.Trace, names []string) {
	first := ""
	for i := range t.Spans {
		s := &t.Spans[i]
		end := s.Start.Add(s.Took)
		switch {
		case s.IsAnswer() && slices.Contains(names, trace.Name(s.Object)) && (f.Pod == "" || end.Before(f.At)):
			*f, first = FirstAnswer{At: end, Pod: "a Pod"}, s.ID
		case s.Parent == first && first != "": // its one step, which has the name of the Pod
			if f.Pod = s.Name; s.Detail != "" {
				f.Through = ", " + s.Detail
			}
		}
	}
}
