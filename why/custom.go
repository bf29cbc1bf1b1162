package why

import (
	"context"
	"slices"
	"strings"
	"time"

	"proa.dev/hop"
	"proa.dev/why/answer"
	"proa.dev/why/lookup"
	"proa.dev/why/metadata"
)

// positive are conditions that are good when they are True, negative those that are good when they are False. Of others nobody but their
// controller knows.
const (
	positive = " Ready Available Synced Healthy Reconciled Established NamesAccepted Accepted Programmed ResolvedRefs Succeeded Valid Approved Issued "
	negative = " Stalled Degraded Failed Failing Failure Error Terminating Paused Blocked Pressure NotReady Invalid Conflicted Deprecated Dangling NonStructuralSchema "
)

// failedPhases are phases from which most objects do not come back by themselves.
const failedPhases = " Failed Error Lost "

func isOneOf(word, words string) bool { return strings.Contains(words, " "+word+" ") }

// custom explains an object of which nothing is known but the conventions of the API: conditions, generations, finalizers and Events.
func (r *reader) custom(ctx context.Context, t Target) (*Answer, error) {
	o, err := lookup.Load[lookup.Conditioned](ctx, r.Reader, t.Resource, t.Namespace, t.Name)
	if err != nil {
		return nil, err
	}
	o.ReadStatus()
	a := (&Answer{Object: t.ref(), State: Stuck}).At(hop.Control)
	if o.DeletionTimestamp != nil {
		return metadata.Ending(a, &o.ObjectMeta, r.Now), nil
	}
	if stale := o.ObservedGeneration; stale != nil && *stale < o.Generation {
		return metadata.NotActed(a, &o.ObjectMeta, *stale, r.Now), nil
	}
	if judgeConditions(a, o.Conditions); a.Cause != "" {
		return a, nil
	}
	if isOneOf(o.Phase, failedPhases) {
		a.Cause = "Its phase is " + o.Phase + "."
		return a.Because(a.Object, "status.phase", o.Phase, time.Time{}), nil
	}
	events := r.Events(ctx, t.Namespace, o.UID)
	if len(events) > 0 && events[0].Type == "Warning" {
		e := &events[0]
		a.Cause = "The last Event about it is a warning (" + e.Reason + "): " + answer.Sentence(e.Message) + "."
		return a.Because(a.Object, "event "+e.Reason, e.Message, e.Time), nil
	}
	a.Hop, a.HopName = 0, ""
	if len(o.Conditions) == 0 && o.Phase == "" {
		a.State, a.Cause = Unknown, "The "+t.Kind+" has no conditions and no warnings: nothing says that it is stuck, and nothing says that it works."
		return a, nil
	}
	a.State, a.Cause = Working, "Nothing in its conditions or Events says that it is stuck."
	for i := range o.Conditions {
		c := &o.Conditions[i]
		a.Because(a.Object, "status.conditions["+c.Type+"]", c.Status, c.Time())
	}
	if o.Phase != "" {
		a.Because(a.Object, "status.phase", o.Phase, time.Time{})
	}
	return a, nil
}

// judgeConditions sets the cause by the conditions, if one of them is not as it should be. Where only conditions are False of which it is
// not known whether that is bad, and no other says that the object is well, the state is Unknown.
func judgeConditions(a *Answer, conditions []lookup.Condition) {
	var bad, unclear []*lookup.Condition
	well := false
	for i := range conditions {
		c := &conditions[i]
		switch good := isOneOf(c.Type, positive); {
		case good && c.Status == "True":
			well = true
		case good && c.Status == "False" || isOneOf(c.Type, negative) && c.Status == "True":
			bad = append(bad, c)
		case good || c.Status == "False" && !isOneOf(c.Type, negative):
			unclear = append(unclear, c)
		}
	}
	if len(bad) == 0 {
		if well && !slices.ContainsFunc(unclear, func(c *lookup.Condition) bool { return isOneOf(c.Type, positive) }) {
			return
		}
		if len(unclear) == 0 {
			return
		}
		a.State, bad = Unknown, unclear
	}
	for _, c := range bad {
		a.Because(a.Object, "status.conditions["+c.Type+"]", strings.TrimRight(c.Status+" "+c.Reason+": "+c.Message, ": "), c.Time())
		if a.Cause == "" || c.Type == "Ready" {
			a.Cause = "Its controller says that " + c.Type + " is " + c.Status
			if c.Reason != "" {
				a.Cause += " (" + c.Reason + ")"
			}
			if c.Message != "" {
				a.Cause += ": " + answer.Sentence(c.Message)
			}
			a.Cause += "."
		}
	}
}
