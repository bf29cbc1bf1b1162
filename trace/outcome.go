package trace

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"proa.dev/hop"
)

// ending is how far an object has come, and with which record.
type ending struct {
	state State
	at    *item
}

// canBeReady tells whether objects of a resource become ready some time after they are written.
func canBeReady(resource, group string) bool {
	switch group {
	case "":
		return resource == "pods" || resource == "replicationcontrollers"
	case "apps":
		return resource == "deployments" || resource == "replicasets" || resource == "statefulsets" || resource == "daemonsets"
	case "batch":
		return resource == "jobs"
	}
	return false
}

// canBeProgrammed tells whether nodes or the HTTP proxy are configured with objects of a resource.
func canBeProgrammed(resource, group string) bool {
	switch group {
	case "":
		return resource == "services"
	case "discovery.k8s.io":
		return resource == "endpointslices"
	case "networking.k8s.io":
		return resource == "ingresses"
	case "gateway.networking.k8s.io":
		return resource == "gateways" || resource == "httproutes" || resource == "grpcroutes" || resource == "tlsroutes"
	}
	return false
}

// outcome returns how far the object of a trace has come.
func outcome(items []*item, object Ref) ending {
	root := items[slices.IndexFunc(items, func(it *item) bool { return it.isRoot })]
	if isFailed(root.Record) {
		return ending{Failed, root}
	}
	if end, isDeletion := deletion(items, root, object); isDeletion {
		return end
	}
	var own, programmed, programming, lastWrite *item
	var isReady bool
	for _, it := range items {
		switch {
		case it.Verb == hop.Program && !it.Open && !isFailed(it.Record):
			if programmed == nil || it.end.After(programmed.end) {
				programmed = it
			}
		case it.Verb == hop.Program && it.Open && it.UID == object.UID:
			programming = it
		case isWrite(it.Record) && it.UID == object.UID && !isFailed(it.Record):
			if lastWrite == nil {
				lastWrite = it
			}
			if it.Ready && !isReady {
				own, isReady = it, true
			}
		}
	}
	switch {
	case isReady:
		return ending{Ready, own}
	case canBeReady(object.Resource, object.Group) && lastWrite != nil && lastWrite.Verb != deleteVerb:
		return ending{Running, furthest(items)}
	case programming != nil:
		return ending{Running, programming}
	case programmed != nil && canBeProgrammed(object.Resource, object.Group):
		return ending{Programmed, programmed}
	case lastWrite != nil:
		return ending{Accepted, lastWrite}
	}
	return ending{Accepted, root}
}

// deletion returns how far the deletion of an object has come, if it was deleted or the trace begins with a request to delete it. Such an
// object may wait for its containers to end, or for finalizers.
func deletion(items []*item, root *item, object Ref) (end ending, isDeletion bool) {
	for _, it := range items {
		if it.Removed && it.UID == object.UID {
			return ending{Deleted, it}, true
		}
	}
	if isDeletionOf(root.Record, object) {
		return ending{Running, furthest(items)}, true
	}
	return ending{}, false
}

// isDeletionOf tells whether a write is a request to delete an object.
func isDeletionOf(r *hop.Record, object Ref) bool { return r.Verb == deleteVerb && r.UID == object.UID }

// deleteVerb is the verb of requests to delete one object.
const deleteVerb = "delete"

// furthest returns the open record that began last, or else the record that ended last.
func furthest(items []*item) *item {
	var open, ended *item
	for _, it := range items {
		if it.Verb == hop.Deliver {
			continue
		}
		if it.Open {
			if open == nil || !it.start.Before(open.start) {
				open = it
			}
		} else if ended == nil || !it.end.Before(ended.end) {
			ended = it
		}
	}
	if open != nil {
		return open
	}
	return ended
}

// milestones returns the moments of a trace that people look for. Of several Pods the last one counts, but for the first answer to a
// client, which is that of any of them.
func milestones(items []*item, t *Trace) []Milestone {
	last := map[string]time.Time{}
	note := func(name string, at time.Time) {
		if at.After(last[name]) {
			last[name] = at
		}
	}
	const answered = "First answer"
	ready := map[string]bool{} // by UID: later writes of the same object do not count
	for _, it := range items {
		if it.Open || isFailed(it.Record) {
			continue
		}
		switch {
		case it.isRoot:
			note("Accepted", it.end)
		case isBinding(it.Record):
			note("Scheduled", it.end)
		case it.Verb == hop.Sandbox:
			note("Sandbox", it.end)
		case it.Verb == hop.Container:
			note("Started", it.end)
		case it.Verb == hop.Program:
			note("Programmed", it.end)
		case it.Verb == hop.Answer:
			if first, known := last[answered]; !known || it.end.Before(first) {
				last[answered] = it.end
			}
		}
		isOwn := it.UID == t.Object.UID
		if isWrite(it.Record) && it.Ready && !ready[string(it.UID)] && isOwn {
			ready[string(it.UID)] = true
			note("Ready", it.end)
		}
		if it.Removed && isOwn {
			note(string(Deleted), it.end)
		}
	}
	var out []Milestone
	for _, name := range []string{"Accepted", "Scheduled", "Sandbox", "Started", "Ready", "Programmed", answered, string(Deleted)} {
		if at, known := last[name]; known {
			out = append(out, Milestone{Name: name, At: at.Sub(t.Start)})
		}
	}
	slices.SortStableFunc(out, func(a, b Milestone) int { return int(min(1, max(-1, a.At-b.At))) })
	return out
}

// stuck says at which hop an object is that has not come as far as it should, and with which record: what is open, or what has failed
// and was not done since. The record is nil if there is none.
func stuck(items []*item, now time.Time) (text string, at *item) {
	var open, failed *item
	for _, it := range items {
		switch {
		case it.Open && it.Verb != hop.Deliver:
			if open == nil || isBefore(it, open) {
				open = it
			}
		case isFailed(it.Record):
			failed = it
		case failed != nil && it.UID == failed.UID && it.Verb == failed.Verb && it.Subresource == failed.Subresource:
			failed = nil
		}
	}
	switch {
	case open != nil:
		text = "still at " + place(open) + ", " + Seconds(now.Sub(open.start)) + " so far"
		if open.Error != "" {
			text += ": " + open.Error
		}
		return text, open
	case failed != nil:
		return "failed at " + place(failed) + ": " + errorOf(failed.Record), failed
	}
	if last := furthest(items); last != nil {
		return "nothing is under way; the last was " + place(last) + ", " + Seconds(now.Sub(last.end)) + " ago", last
	}
	return "", nil
}

// isBefore tells whether an open record holds up more than another one: it is at an earlier hop, or has waited longer there.
func isBefore(a, b *item) bool {
	if x, y := mainHop(a.Record), mainHop(b.Record); x != y {
		return x < y
	}
	return a.start.Before(b.start)
}

// place names the hop of a record, what it does, and on what.
func place(it *item) string {
	h := mainHop(it.Record)
	if h == 0 {
		h = failingHop(it.Record)
	}
	what := nameOf(it.Record)
	if image, isPull := strings.CutPrefix(what, "pull "); isPull {
		what = "pull of " + image
	}
	if n := len(it.Steps); n > 0 && it.Open && it.Verb == hop.ScheduleAttempt {
		if what += ", " + it.Steps[n-1].Name; it.Steps[n-1].Detail != "" {
			what += ": " + it.Steps[n-1].Detail
		}
	}
	object := it.Resource + "/" + it.Name
	if h == 0 {
		return what + " (" + object + ")"
	}
	return fmt.Sprintf("hop %d (%s): %s (%s)", h, h, what, object)
}

// summary says in one sentence how long it took and what took the time.
func summary(t *Trace) string {
	var text string
	took := t.Took
	switch t.State {
	case Ready:
		text = Seconds(took) + " from " + beginning(t) + " to Ready"
	case Programmed:
		text = Seconds(took) + " from " + beginning(t) + " until " + programmedText(t.Object)
	case Failed:
		text = "refused after " + Seconds(took)
	case Accepted:
		text = Seconds(took) + " from " + beginning(t) + " to commit"
	case Deleted:
		text = Seconds(took) + " from " + beginning(t) + " until it was gone"
	default:
		text = Seconds(took) + " since " + beginning(t) + " and not ready"
		if t.isDeletion {
			text = Seconds(took) + " since " + beginning(t) + " and not gone"
		} else if canBeProgrammed(t.Object.Resource, t.Object.Group) {
			text = Seconds(took) + " since " + beginning(t) + " and not programmed"
		}
	}
	if list := largest(t.Critical, took); len(list) > 0 {
		text += ": " + strings.Join(list, ", ")
	}
	return text
}

// programmedText says what had to be programmed for an object.
func programmedText(object Ref) string {
	if object.Group == "networking.k8s.io" || object.Group == "gateway.networking.k8s.io" {
		return "the proxy of the last node served it"
	}
	return "the rules of the last node were programmed"
}

// beginning returns the word for the command that a trace begins with.
func beginning(t *Trace) string {
	words := strings.Fields(t.Command)
	if len(words) > 1 && words[0] == "kubectl" {
		return words[1]
	}
	return "the request"
}

// largest returns the largest sums of shares with the same name, at most four, and the rest as "other".
func largest(shares []Share, whole time.Duration) []string {
	type sum struct {
		name string
		took time.Duration
	}
	var sums []sum
	var total time.Duration
	for _, s := range shares {
		name := s.Name
		if s.Wait && s.Name != watchLabel && s.Name != unknownLabel {
			name += " wait"
		}
		total += s.Took
		if i := slices.IndexFunc(sums, func(o sum) bool { return o.name == name }); i >= 0 {
			sums[i].took += s.Took
		} else {
			sums = append(sums, sum{name, s.Took})
		}
	}
	slices.SortStableFunc(sums, func(a, b sum) int { return int(min(1, max(-1, b.took-a.took))) })
	var out []string
	rest := max(whole, total)
	for _, s := range sums {
		if len(out) == maxShares || s.took < whole/50 {
			break
		}
		out = append(out, Seconds(s.took)+" "+s.name)
		rest -= s.took
	}
	if len(out) > 0 && rest > whole/200 {
		out = append(out, Seconds(rest)+" other")
	}
	return out
}

// maxShares is how many parts of the critical path the summary names.
const maxShares = 4

// Seconds writes a duration as people read it: with three digits and a unit.
func Seconds(d time.Duration) string {
	switch {
	case d < 0:
		return "-" + Seconds(-d)
	case d == 0:
		return "0 s"
	case d < time.Microsecond:
		return strconv.FormatInt(d.Nanoseconds(), 10) + " ns"
	case d < time.Millisecond:
		return strconv.FormatInt(d.Microseconds(), 10) + " µs"
	case d < 10*time.Millisecond:
		return strconv.FormatFloat(d.Seconds()*1e3, 'f', 1, 64) + " ms"
	case d < time.Second:
		return strconv.FormatInt(d.Round(time.Millisecond).Milliseconds(), 10) + " ms"
	case d < time.Minute:
		return strconv.FormatFloat(d.Seconds(), 'f', 2, 64) + " s"
	case d < time.Hour:
		return strconv.Itoa(int(d.Minutes())) + " min " + strconv.Itoa(int(d.Seconds())%60) + " s"
	}
	return strconv.Itoa(int(d.Hours())) + " h " + strconv.Itoa(int(d.Minutes())%60) + " min"
}
