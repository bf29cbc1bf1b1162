// Package refusedwrite explains requests that were refused at hops 2 to 7, by the traces of their objects.
package refusedwrite

import (
	"strings"

	"proa.dev/hop"
	"proa.dev/trace"
	"proa.dev/why/answer"
	"proa.dev/why/messages"
)

// Any is for Last, and takes whatever has refused a write.
func Any(*trace.Span) bool { return true }

// Last returns the span of the hop, or of its step, that has refused a write in a way that matches; nil if there is none. Of several
// the last one counts.
func Last(t *trace.Trace, matches func(*trace.Span) bool) (last *trace.Span) {
	for i := range t.Spans {
		s := &t.Spans[i]
		if s.Error == "" || s.Hop == 0 || s.Hop > int(hop.Commit) || !matches(s) {
			continue
		}
		if last == nil || s.Parent == last.ID || !s.Start.Before(last.Start) && s.Hop >= last.Hop {
			last = s
		}
	}
	return last
}

// isOutage tells whether a write was refused because the store does not answer. Hops between authentication and the commit have messages
// of others, such as webhooks with a store of their own.
func isOutage(s *trace.Span) bool {
	return (s.Hop == int(hop.Authenticate) || s.Hop == int(hop.Commit)) && messages.IsOutage(s.Error)
}

// ExplainMissing explains an object that does not exist by the trace of the last request to make it, which was refused.
func ExplainMissing(a *answer.Answer, record *trace.Trace) {
	a.State = answer.Stuck
	begin := "The " + a.Object.Kind + " does not exist: the last request to make it was refused"
	last := Last(record, Any)
	if last == nil {
		a.Cause = answer.OneLine(begin + ": " + answer.Sentence(record.Stuck) + ".")
		addRequest(a, record, nil)
		a.Do("read the message")
		return
	}
	a.At(hop.Hop(last.Hop))
	switch {
	case isOutage(last):
		begin += " because the store (etcd) did not answer"
	case last.Name != a.HopName:
		begin += " by " + last.Name
	}
	a.Cause = answer.OneLine(begin + ": " + answer.Sentence(last.Error) + ".")
	a.Because(a.Object, "record of "+last.Name, last.Error, last.Start)
	addRequest(a, record, last)
	a.Do("%s", advice(a, last))
}

// addRequest adds who has sent a refused request. What an unknown client says of itself is nobody's word.
func addRequest(a *answer.Answer, record *trace.Trace, last *trace.Span) {
	switch {
	case record.User != "":
		a.Because(a.Object, "record of the request", "by "+record.User+" "+record.Command, record.Start)
	case last != nil && last.Hop == int(hop.Authenticate):
		a.Because(a.Object, "record of the request", "by a client that nobody knows: anybody may have sent it, with any name in it", record.Start)
	}
}

// advice says what to do about a refusal.
func advice(a *answer.Answer, last *trace.Span) string {
	switch {
	case isOutage(last):
		return OutageAdvice
	case last.Hop == int(hop.Authenticate):
		return "check the token or the client certificate of whoever sent the request"
	case !strings.Contains(last.Error, " "):
		return "the record has only the reason, because a message could tell what is confidential; send the request again to see it"
	case messages.IsUndecodable(last.Error):
		return "correct what the message names; kubectl explain shows the fields that the kind has"
	}
	_, _, text := messages.Refusal(a.Cause)
	return text
}

// OutageAdvice says what to do about a store that does not answer.
const OutageAdvice = "check that etcd runs and that the server reaches it (--etcd-servers); kubectl get --raw '/readyz?verbose' says whether " +
	"it answers; then look whether the write was made after all, and send the request again if not"

// ExplainOutage explains an object that exists, and that the last request could not change because the store did not answer. It reports
// whether that is so.
func ExplainOutage(a *answer.Answer, record *trace.Trace) bool {
	last := Last(record, isOutage)
	if record.State != trace.Failed || last == nil {
		return false
	}
	a.State = answer.Stuck
	before := answer.Sentence(a.Cause)
	a.Cause = answer.OneLine("The last request to change the " + a.Object.Kind + " was refused because the store (etcd) does not answer: " +
		answer.Sentence(last.Error) + ". The server remembers: " + before + ".")
	a.At(hop.Hop(last.Hop)).Because(a.Object, "record of "+last.Name, last.Error, last.Start)
	addRequest(a, record, last)
	a.Actions = nil
	a.Do(OutageAdvice)
	return true
}
