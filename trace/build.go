package trace

import (
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"proa.dev/hop"
)

// Build makes the trace of an object from records; nil if there is no record of a write of it. It starts from the newest write of the
// object by a user, or the write of another object that led to it, and follows what each write has caused.
func Build(records []hop.Record, object Ref, now time.Time) *Trace {
	return NewIndex(records).Trace(object, now)
}

// Trace makes the trace of an object, as Build does.
func (x *Index) Trace(object Ref, now time.Time) *Trace {
	g := x.gather(object)
	if g == nil {
		return nil
	}
	root, first := x.records[g.root], x.records[g.first]
	items := g.items(now)
	t := &Trace{
		TypeMeta: metav1.TypeMeta{APIVersion: Group + "/" + Version, Kind: "Trace"}, Object: refOf(first), User: root.User,
		Start:   root.Start,
		Dropped: g.dropped, root: refOf(root).withoutUID(),
	}
	t.Name, t.Namespace = Name(object), NamespaceOf(object)
	t.CreationTimestamp = metav1.NewTime(root.Start)
	if t.Object.UID == "" {
		t.Object.UID = object.UID
	}
	t.isDeletion = isDeletionOf(root, t.Object)
	end := outcome(items, t.Object)
	t.State = end.state
	if end.at != nil && end.state != Running {
		items, t.Later = cutLater(items, end.at.end)
	}
	client, hasClient := x.clientSpan(root)
	if hasClient {
		t.Start = client.Start
	}
	if o := root.Origin; o != nil {
		t.Command = o.Command
	}
	if end.at == nil {
		end.at = items[len(items)-1]
	}
	segments := criticalPath(items, end.at, root.Start)
	for _, s := range segments {
		s.item.isCritical = true
		t.Critical = append(t.Critical, s.shares()...)
	}
	if hasClient {
		client.Critical = true
		t.Critical = append([]Share{{Span: client.ID, Name: hop.Client.String(), Took: client.Took}}, t.Critical...)
		t.Spans = append(t.Spans, client)
	}
	t.addSpans(items)
	t.finish(items, now)
	t.Milestones = milestones(items, t)
	if t.State == Running || t.State == Failed {
		text, at := stuck(items, now)
		if at != nil {
			t.Stuck, t.StuckSpan, t.stuckRef, t.stuckHop = text, at.id, refOf(at.Record).withoutUID(), mainHop(at.Record)
			if err := errorOf(at.Record); strings.HasSuffix(text, ": "+err) {
				t.stuckError = err
			}
		}
	}
	t.Took = end.at.end.Sub(t.Start)
	if t.State == Running {
		t.Took = max(t.Took, now.Sub(t.Start))
	}
	t.Summary = summary(t)
	return t
}

// clientSpan returns the time between the first request of kubectl's command and the write that the trace begins with.
func (x *Index) clientSpan(root *hop.Record) (Span, bool) {
	if root.Origin == nil || root.Origin.Session == "" {
		return Span{}, false
	}
	begin, known := x.session[sessionOf(root)]
	took := root.Start.Sub(begin)
	if !known || took <= 0 || took > time.Hour {
		return Span{}, false
	}
	s := Span{
		ID: hashID("client", root.Origin.Session), Hop: int(hop.Client), HopName: hop.Client.String(), Name: root.Origin.Command,
		Actor: root.User, Object: refOf(root), Start: begin, Took: took,
	}
	if s.Name == "" {
		s.Name = hop.Client.String()
	}
	return s, true
}

// addSpans adds the spans of items. When there are too many, first those of hops and steps are left out of what is not on the critical
// path, then the deliveries of watches, and then what came last.
func (t *Trace) addSpans(items []*item) {
	byVersion := map[version]string{}
	total := 0
	for _, it := range items {
		if v := (version{it.UID, it.Rev}); isWrite(it.Record) && it.UID != "" && byVersion[v] == "" {
			byVersion[v] = it.id
		}
		total += 1 + len(hopsOf(it)) + len(it.Steps)
	}
	brief, room := total > maxSpans, maxSpans-len(t.Spans)
	chosen := make([][]Span, len(items))
	for _, critical := range []bool{true, false} {
		for i, it := range items {
			if it.isCritical != critical {
				continue
			}
			var links []string
			if id := byVersion[cause(it.Record)]; id != "" && id != it.id {
				links = []string{id}
			}
			spans := spansOf(it, links)
			keep := len(spans)
			if brief && !critical {
				keep = 1
				if it.Verb == hop.Deliver {
					keep = 0
				}
			}
			keep = min(keep, room)
			t.Dropped += len(spans) - keep
			room -= keep
			chosen[i] = spans[:keep]
		}
	}
	for _, spans := range chosen {
		t.Spans = append(t.Spans, spans...)
	}
}

// finish sets the end of a trace in which nothing is open.
func (t *Trace) finish(items []*item, now time.Time) {
	end := t.Start
	for _, it := range items {
		if it.Open {
			return
		}
		if it.end.After(end) {
			end = it.end
		}
	}
	if t.State == Running {
		return
	}
	if end.After(now) {
		end = now
	}
	t.End = &end
}
