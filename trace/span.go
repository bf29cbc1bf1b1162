package trace

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"slices"
	"strings"
	"time"

	"proa.dev/hop"
)

// maxSpans is how many spans a trace has at most.
const maxSpans = 2000

// recordID returns the ID of the span of a record: 16 hexadecimal digits, the same each time the trace is read.
func recordID(r *hop.Record) string {
	return hashID(string(r.UID), fmt.Sprint(r.Rev), r.Verb, r.Resource, r.Subresource, r.Name, r.User, r.Process,
		fmt.Sprint(r.Start.UnixNano()))
}

func hashID(parts ...string) string {
	h := fnv.New64a()
	for _, p := range parts {
		h.Write([]byte(p))
		h.Write([]byte{0})
	}
	return fmt.Sprintf("%016x", h.Sum64())
}

// hopPart is the time of a record at one hop.
type hopPart struct {
	hop        hop.Hop
	start      time.Time
	wait, took time.Duration
}

// hopsOf returns the hops of an item, which follow one another.
func hopsOf(it *item) []hopPart {
	var out []hopPart
	at := it.start
	for h := hop.Client; h <= hop.Network; h++ {
		took, wait := max(it.Took[h], 0), max(it.Wait[h], 0)
		if more := it.end.Sub(at) - took; it.Open && h == lastHop(it.Record) && more > 0 { // it goes on
			took += more
			if isWaiting(it.Record) {
				wait += more
			}
		}
		if took = min(took, it.end.Sub(at)); took <= 0 {
			continue
		}
		out = append(out, hopPart{hop: h, start: at, wait: min(wait, took), took: took})
		at = at.Add(took)
	}
	return out
}

// isWaiting tells whether open work waits at present: after a failure for the next try, or in a last step that is nothing but waiting.
func isWaiting(r *hop.Record) bool {
	if r.Error != "" || len(r.Steps) == 0 {
		return r.Error != ""
	}
	last := &r.Steps[len(r.Steps)-1]
	return last.Wait > 0 && last.Wait >= last.Took
}

// lastHop returns the last hop at which a record has spent time; 0 for none.
func lastHop(r *hop.Record) hop.Hop {
	for h := hop.Network; h > 0; h-- {
		if r.Took[h] > 0 {
			return h
		}
	}
	return 0
}

// failingHop returns the hop at which a write was refused.
func failingHop(r *hop.Record) hop.Hop {
	if r.Refused != 0 {
		return r.Refused
	}
	return lastHop(r)
}

// mainHop returns the hop that a record belongs to as a whole; 0 for a write, which has several.
func mainHop(r *hop.Record) hop.Hop {
	switch r.Verb {
	case hop.Deliver:
		return hop.Watch
	case hop.Reconcile:
		return hop.Control
	case hop.ScheduleAttempt:
		return hop.Schedule
	case hop.Program, hop.Answer:
		return hop.Network
	case hop.Receive, hop.Volumes, hop.Sandbox, hop.PodNetwork, hop.Pull, hop.Container, hop.Probe, hop.Stop:
		return hop.Node
	}
	return 0
}

// spansOf returns the span of an item with those of its hops and steps. links are the spans that caused it.
func spansOf(it *item, links []string) []Span {
	whole := Span{
		ID: it.id, Links: links, Name: nameOf(it.Record), Actor: it.User, Object: refOf(it.Record), Revision: it.Rev, Process: it.Process,
		Start: it.start, Took: it.end.Sub(it.start), Open: it.Open, Critical: it.isCritical, Error: errorOf(it.Record),
	}
	if it.Origin != nil {
		whole.TraceParent, whole.AuditID = it.Origin.TraceParent, it.Origin.AuditID
	}
	if it.isMoved {
		whole.Detail = "its times were not possible and are shown as near as can be"
	}
	if it.Open && it.Verb == hop.Pull && len(it.Steps) > 0 && whole.Detail == "" {
		whole.Detail, _ = cutLast(it.Steps[0].Detail, ": ") // how much has been downloaded; the image is in the name
	}
	parts := hopsOf(it)
	parents := map[hop.Hop]string{}
	out := []Span{whole}
	main := mainHop(it.Record)
	out[0].Hop, out[0].HopName = int(main), main.String()
	for _, p := range parts {
		out[0].Wait += p.wait
	}
	if main == 0 || len(parts) > 1 {
		for _, p := range parts {
			child := Span{
				ID: hashID(it.id, p.hop.String()), Parent: it.id, Hop: int(p.hop), HopName: p.hop.String(), Name: p.hop.String(),
				Actor: it.User, Object: whole.Object, Process: it.Process, Start: p.start, Wait: p.wait, Took: p.took,
				Critical: it.isCritical,
			}
			if isFailed(it.Record) && p.hop == failingHop(it.Record) {
				child.Error = whole.Error
			}
			parents[p.hop] = child.ID
			out = append(out, child)
		}
	}
	for i, s := range it.Steps {
		if i >= maxSteps {
			break
		}
		out = append(out, spanOfStep(it, s, i, cmp.Or(parents[s.Hop], it.id)))
	}
	slices.SortStableFunc(out[1:], func(a, b Span) int { return a.Start.Compare(b.Start) })
	return parentsFirst(out)
}

// maxSteps is how many steps of a record are shown at most.
const maxSteps = 64

// spanOfStep returns the span of a step, within the times of its record.
func spanOfStep(it *item, s hop.Step, n int, parent string) Span {
	start := it.start.Add(max(s.After, 0))
	if start.After(it.end) {
		start = it.end
	}
	took, wait := min(max(s.Took, 0), it.end.Sub(start)), max(s.Wait, 0)
	if it.Open && n == len(it.Steps)-1 && !s.Failed { // it goes on
		took = it.end.Sub(start)
		if isWaiting(it.Record) {
			wait = took
		}
	}
	h := s.Hop
	if h > hop.Network {
		h = 0
	}
	span := Span{
		ID: hashID(it.id, "step", fmt.Sprint(n)), Parent: parent, Hop: int(h), Name: s.Name, Actor: it.User, Object: refOf(it.Record),
		Process: it.Process, Start: start, Wait: min(wait, took), Took: took, Critical: it.isCritical, Detail: s.Detail,
	}
	if h != 0 {
		span.HopName = h.String()
	}
	if s.Failed {
		span.Error = cmp.Or(it.Error, "failed")
	}
	return span
}

// parentsFirst moves spans behind their parents, and keeps their order otherwise. The first one is the parent of all.
func parentsFirst(spans []Span) []Span {
	children := map[string][]Span{}
	for _, s := range spans[1:] {
		children[s.Parent] = append(children[s.Parent], s)
	}
	out := make([]Span, 0, len(spans))
	var add func(s Span)
	add = func(s Span) {
		out = append(out, s)
		for _, c := range children[s.ID] {
			if c.ID != s.ID {
				add(c)
			}
		}
	}
	add(spans[0])
	return out
}

// nameOf says in a few words what a record is about. The steps of work on a node begin with a word for what is done and end with the
// name of the container; the detail of a pull ends with the image.
func nameOf(r *hop.Record) string {
	var first hop.Step
	if len(r.Steps) > 0 {
		first = r.Steps[0]
	}
	what, container := cutLast(first.Name, " ")
	switch r.Verb {
	case hop.Pull:
		if _, image := cutLast(first.Detail, ": "); image != "" {
			return "pull " + image
		}
		return "pull " + first.Name
	case hop.Container:
		return strings.TrimSpace("container " + container)
	case hop.Probe:
		if what == "" {
			return strings.TrimSpace(first.Name + " probe")
		}
		return what + " probe of " + container
	case hop.PodNetwork:
		return "pod network"
	case hop.Deliver:
		return "deliver " + resourceOf(r)
	case hop.Program:
		return programName(r)
	case hop.Answer:
		return strings.TrimSpace(answerName + " of " + first.Name)
	case hop.Reconcile, hop.ScheduleAttempt, hop.Receive, hop.Volumes, hop.Sandbox, hop.Stop:
		return r.Verb
	}
	return r.Verb + " " + resourceOf(r)
}

// answerName is what the first answer of a Pod to a client is called.
const answerName = "first answer"

// IsAnswer reports whether a span is the first answer of a Pod to a client.
func (s *Span) IsAnswer() bool {
	return s.Hop == int(hop.Network) && s.Parent == "" && strings.HasPrefix(s.Name, answerName)
}

// programName says what was programmed: the rules of Services, or the routes of the HTTP proxy, as the last step says.
func programName(r *hop.Record) string {
	if n := len(r.Steps); n > 0 && r.Steps[n-1].Name == "routes" {
		return "program routes"
	}
	return "program rules"
}

// cutLast cuts a text at the last separator. Without one everything is behind it.
func cutLast(s, separator string) (before, after string) {
	i := strings.LastIndex(s, separator)
	if i < 0 {
		return "", s
	}
	return s[:i], s[i+len(separator):]
}

func resourceOf(r *hop.Record) string {
	name := r.Resource
	if r.Group != "" {
		name += "." + r.Group
	}
	if r.Subresource != "" {
		name += "/" + r.Subresource
	}
	return name
}

func errorOf(r *hop.Record) string {
	if r.Error == "" && r.Code >= 400 {
		return fmt.Sprintf("refused with code %d", r.Code)
	}
	return r.Error
}

// The names of time in which nothing is recorded: before other work a watch carries an event to whoever acts next, and before a write
// something must have been done of which there is no record.
const (
	watchLabel   = "watch"
	unknownLabel = "not recorded"
)

// label returns the word for a record in the sum of the critical path.
func label(it *item) string {
	switch it.Verb {
	case hop.Deliver:
		return watchLabel
	case hop.Reconcile, hop.ScheduleAttempt, hop.Receive, hop.Volumes, hop.Sandbox, hop.Pull, hop.Stop:
		return it.Verb
	case hop.PodNetwork:
		return "pod network"
	case hop.Program:
		return programName(it.Record)
	case hop.Answer:
		return answerName
	case hop.Container:
		return "container start"
	case hop.Probe:
		if len(it.Steps) > 0 {
			if name, _, _ := strings.Cut(it.Steps[0].Name, " "); name == "startup" || name == "readiness" || name == "liveness" {
				return name + " probe"
			}
		}
		return "probe"
	}
	return "API server"
}
