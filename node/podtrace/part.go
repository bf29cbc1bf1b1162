package podtrace

import (
	"context"
	"slices"
	"time"

	"proa.dev/hop"
	"proa.dev/kinds/nodereport"
)

// Part is a step of a piece of work that goes on at the same time as other steps. All methods of a nil Part do nothing.
type Part struct {
	work    *Work
	step    hop.Step
	isWait  bool // its whole time counts as waiting
	isEnded bool
}

// BeginPart records that a named part of the work begins, beside others that are under way.
func (k *Work) BeginPart(name string) *Part { return k.beginPart(name, false) }

// BeginWaiting is BeginPart for a part in which the node only waits.
func (k *Work) BeginWaiting(name string) *Part { return k.beginPart(name, true) }

func (k *Work) beginPart(name string, isWait bool) *Part {
	if k == nil {
		return nil
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	now := time.Now()
	p := &Part{work: k, isWait: isWait, step: hop.Step{Hop: hop.Node, Name: nodereport.Text(name), After: now.Sub(k.rec.Start)}}
	at := len(k.parts) // those that wait come last, because the last step tells whether the work as a whole waits
	if isWait {
		if k.waitsSince.IsZero() {
			k.waitsSince = now
		}
	} else if first := slices.IndexFunc(k.parts, func(p *Part) bool { return p.isWait }); first >= 0 {
		at = first
	}
	k.parts = slices.Insert(k.parts, at, p)
	if k.rec.Open && k.failures == 0 { // later tries would say the same
		k.report()
	}
	return p
}

// End ends the part, with what is worth knowing of it. It has failed if err is not nil.
func (p *Part) End(detail string, err error) {
	if p == nil {
		return
	}
	k := p.work
	k.mu.Lock()
	defer k.mu.Unlock()
	if p.isEnded {
		return
	}
	p.isEnded = true
	p.step.Detail, p.step.Failed = nodereport.Text(detail), err != nil
	// A new slice, because records that were handed over have the old one.
	k.rec.Steps = longest(append(slices.Clone(k.rec.Steps), p.stepSoFar()), nodereport.MaxSteps)
	k.parts = slices.DeleteFunc(k.parts, func(other *Part) bool { return other == p })
	if p.isWait && !slices.ContainsFunc(k.parts, func(other *Part) bool { return other.isWait }) {
		k.rec.Wait[hop.Node] += time.Since(k.waitsSince)
		k.waitsSince = time.Time{}
	}
}

// Do does something as a part of the work. The try of the work has failed if it fails, unless ctx has ended.
func (k *Work) Do(ctx context.Context, name string, do func() error) error {
	p := k.BeginPart(name)
	err := do()
	if p.End("", err); err != nil && ctx.Err() == nil {
		k.Failed(err)
	}
	return err
}

// stepSoFar returns the step of the part with the time that it has taken so far.
func (p *Part) stepSoFar() hop.Step {
	out := p.work.soFar(p.step)
	if p.isWait {
		out.Wait = out.Took
	}
	return out
}

// longest removes the shortest steps if there are more than n: those that took long are what somebody looks for.
func longest(steps []hop.Step, n int) []hop.Step {
	for len(steps) > n {
		shortest := 0
		for i := range steps {
			if steps[i].Took < steps[shortest].Took {
				shortest = i
			}
		}
		steps = slices.Delete(steps, shortest, shortest+1)
	}
	return steps
}
