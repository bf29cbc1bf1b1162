package trace

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"proa.dev/hop"
)

// hiddenName stands for what a reader may not see.
const hiddenName = "hidden"

// Reader says what the reader of a trace may see.
type Reader struct {
	// MayGet tells whether he may get an object.
	MayGet func(Ref) bool
	// MayGetNode tells whether he may get a node. Names of nodes are shown in spans about Pods, which name their node themselves, and
	// elsewhere only to those who may get the node.
	MayGetNode func(name string) bool
	// MayGetAll tells whether he may get every object of the cluster. The error of a reconcile may name any of them, and not only the
	// object that the span is about: others see its reason alone. Without the function he may not.
	MayGetAll func() bool
}

// Hide takes out of a trace what its reader may not see. Of a span about an object that he may not get, only the hop and the times
// are left. It gives the trace a resourceVersion that changes with what is left.
func (t *Trace) Hide(r Reader) {
	t.hideErrors(r)
	hidden := map[string]*Span{}
	for i := range t.Spans {
		s := &t.Spans[i]
		if r.MayGet(s.Object.withoutUID()) {
			hideNode(s, r)
			hideConsumer(s, r)
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
	t.ResourceVersion = t.version()
}

// version returns a text that changes with what a trace shows. Time that goes by changes nothing: how long work has taken that has not
// ended, and how many records there are of what happened later.
func (t *Trace) version() string {
	h := fnv64(14695981039346656037)
	h.add(fmt.Sprint(t.Object, t.Command, t.User, t.Start.UnixNano(), t.State, t.StuckSpan, t.Hidden, t.Dropped, t.Milestones, t.Unseen))
	if t.End != nil {
		h.addInt(t.End.UnixNano())
	}
	for i := range t.Spans { // a list has many
		s := &t.Spans[i]
		for _, text := range [...]string{s.ID, s.Name, s.Detail, s.Error} {
			h.add(text)
		}
		switch {
		case s.Open:
			h.addInt(-1)
		case s.Hidden:
			h.addInt(-2)
		}
		if !s.Open {
			h.addInt(int64(s.Took))
			h.addInt(int64(s.Wait))
		}
	}
	return strconv.FormatUint(uint64(h), 10)
}

// fnv64 is the hash FNV-1a without allocations.
type fnv64 uint64

func (h *fnv64) add(s string) {
	for i := range len(s) {
		*h = (*h ^ fnv64(s[i])) * 1099511628211
	}
	h.addInt(int64(len(s)))
}

func (h *fnv64) addInt(n int64) {
	for range 8 {
		*h = (*h ^ fnv64(n&255)) * 1099511628211
		n >>= 8
	}
}

// hideNode takes the name of a node out of a span, unless the span is about a Pod or the reader may get the node.
func hideNode(s *Span, r Reader) {
	node, isNode := strings.CutPrefix(s.Actor, nodePrefix)
	if !isNode || s.Object.Resource == "pods" && s.Object.Group == "" || r.MayGetNode(node) {
		return
	}
	s.Actor, s.Process = nodePrefix+"("+hiddenName+")", ""
}

// hideConsumer takes the name of a service account out of the delivery of an event, unless the reader may get it: that somebody watches an
// object does not tell those who may get the object who he is.
func hideConsumer(s *Span, r Reader) {
	name, isAccount := strings.CutPrefix(s.Actor, accountPrefix)
	if !isAccount || s.Hop != int(hop.Watch) || s.Parent != "" {
		return
	}
	namespace, account, _ := strings.Cut(name, ":")
	if !r.MayGet(Ref{Resource: "serviceaccounts", Namespace: namespace, Name: account}) {
		s.Actor = accountPrefix + "(" + hiddenName + ")"
	}
}

// hideErrors leaves only the reasons of the errors of reconciles, unless the reader may get everything.
func (t *Trace) hideErrors(r Reader) {
	reconciles := map[string]bool{} // spans, with their parts
	for i := range t.Spans {
		s := &t.Spans[i] // a parent comes before its children
		if s.Parent == "" && s.Hop != int(hop.Control) || s.Parent != "" && !reconciles[s.Parent] {
			continue
		}
		reconciles[s.ID] = true
		if s.Error != "" && !r.mayGetAll() {
			s.Error = reasonOf(s.Error)
		}
	}
	if t.stuckHop == hop.Control && t.stuckError != "" && !r.mayGetAll() {
		t.Stuck = strings.TrimSuffix(t.Stuck, t.stuckError) + reasonOf(t.stuckError)
		t.stuckError = reasonOf(t.stuckError)
	}
}

func (r Reader) mayGetAll() bool { return r.MayGetAll != nil && r.MayGetAll() }

// reasonOf returns the beginning of an error of a reconcile that names no object: the reason of a status, with the resource, as in
// "Forbidden on pods". Of an error that does not begin so nothing is left but that there was one.
func reasonOf(text string) string {
	begin, _, _ := strings.Cut(text, ":")
	reason, resource, _ := strings.Cut(begin, " on ")
	isName := func(c rune) bool {
		return c == '.' || c >= '0' && c <= '9' || c >= 'A' && c <= 'Z' || c >= 'a' && c <= 'z'
	}
	if !slices.Contains(statusReasons(), metav1.StatusReason(reason)) || strings.TrimFunc(resource, isName) != "" {
		return "failed"
	}
	return begin
}

// statusReasons are the reasons that the server gives for refusing a request.
func statusReasons() []metav1.StatusReason {
	return []metav1.StatusReason{
		metav1.StatusReasonUnauthorized, metav1.StatusReasonForbidden, metav1.StatusReasonNotFound, metav1.StatusReasonAlreadyExists,
		metav1.StatusReasonConflict, metav1.StatusReasonGone, metav1.StatusReasonInvalid, metav1.StatusReasonServerTimeout,
		metav1.StatusReasonTimeout, metav1.StatusReasonTooManyRequests, metav1.StatusReasonBadRequest,
		metav1.StatusReasonMethodNotAllowed, metav1.StatusReasonNotAcceptable, metav1.StatusReasonRequestEntityTooLarge,
		metav1.StatusReasonUnsupportedMediaType, metav1.StatusReasonInternalError, metav1.StatusReasonExpired,
		metav1.StatusReasonServiceUnavailable,
	}
}
