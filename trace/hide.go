package trace

import "strings"

// hiddenName stands for what a reader may not see.
const hiddenName = "hidden"

// Reader says what the reader of a trace may see.
type Reader struct {
	// MayGet tells whether he may get an object.
	MayGet func(Ref) bool
	// MayGetNode tells whether he may get a node. Names of nodes are shown in spans about Pods, which name their node themselves, and
	// elsewhere only to those who may get the node.
	MayGetNode func(name string) bool
}

// Hide takes out of a trace what its reader may not see. Of a span about an object that he may not get, only the hop and the times
// are left.
func (t *Trace) Hide(r Reader) {
	hidden := map[string]*Span{}
	for i := range t.Spans {
		s := &t.Spans[i]
		if r.MayGet(s.Object.withoutUID()) {
			hideNode(s, r)
			continue
		}
		*s = Span{
			ID: s.ID, Parent: s.Parent, Links: s.Links, Hop: s.Hop, HopName: s.HopName, Name: hiddenName, Start: s.Start, Wait: s.Wait,
			Took: s.Took, Open: s.Open, Critical: s.Critical, Hidden: true,
		}
		hidden[s.ID] = s
		t.Hidden++
	}
	if !r.MayGet(t.root) {
		t.User, t.Command = "", ""
	}
	for i := range t.Critical {
		if s := hidden[t.Critical[i].Span]; s != nil {
			t.Critical[i].Name = hiddenName
			if s.HopName != "" {
				t.Critical[i].Name = s.HopName
			}
		}
	}
	if t.StuckSpan != "" && !r.MayGet(t.stuckRef) {
		t.Stuck = "the hop is one that you may not see"
		if name := t.stuckHop.String(); name != "" {
			t.Stuck = "at hop " + name + ", about an object that you may not see"
		}
	}
	t.Summary = summary(t)
}

// hideNode takes the name of a node out of a span, unless the span is about a Pod or the reader may get the node.
func hideNode(s *Span, r Reader) {
	node, isNode := strings.CutPrefix(s.Actor, nodePrefix)
	if !isNode || s.Object.Resource == "pods" && s.Object.Group == "" || r.MayGetNode(node) {
		return
	}
	s.Actor, s.Process = nodePrefix+"("+hiddenName+")", ""
}
