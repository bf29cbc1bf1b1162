// Package admissionchain calls admission plugins one after the other, and adds what they did to the record of the write.
package admissionchain

import (
	"context"
	"time"

	"proa.dev/hop"
	"proa.dev/kinds/kind"
)

// Mutate calls the mutating plugins in order, and a second time when one of them asks to be reinvoked because a later one
// has changed the object.
func Mutate(ctx context.Context, plugins []kind.Plugin, a *kind.Admission) error {
	a.Reinvocation = &kind.Reinvocation{}
	if err := Admit(ctx, hop.Mutate, plugins, a); err != nil || !a.Reinvocation.IsRequested() {
		return err
	}
	a.Reinvocation.IsSecondRun = true
	return Admit(ctx, hop.Mutate, plugins, a)
}

// Admit calls the plugins of a hop in order until one refuses. Plugins that take long are steps of the record, and so is the
// one that refuses, unless they have added steps of their own.
func Admit(ctx context.Context, h hop.Hop, plugins []kind.Plugin, a *kind.Admission) error {
	detailed := a.Clock != nil && a.Clock.Detailed
	begin := time.Duration(0)
	if detailed {
		begin = a.Clock.Elapsed()
	}
	for _, p := range plugins {
		steps := a.Clock.Steps()
		err := p.Admit(ctx, a)
		end := begin
		if detailed || err != nil {
			end = a.Clock.Elapsed()
		}
		if !detailed {
			begin = end // how long it took is not known
		}
		if (end-begin >= hop.ShortestStep || err != nil) && a.Clock.Steps() == steps {
			step := hop.Step{Hop: h, Name: p.Name, After: begin, Took: end - begin}
			if err != nil {
				step.Failed, step.Detail = true, "denied"
			}
			a.Clock.AddStep(step)
		}
		if err != nil {
			return err
		}
		begin = end
	}
	return nil
}
