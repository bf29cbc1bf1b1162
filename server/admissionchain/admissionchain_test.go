package admissionchain

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"proa.dev/hop"
	"proa.dev/kinds/kind"
)

// TestAdmit checks that plugins run in order until one refuses. A plugin that takes long is a step of a detailed record, the
// one that refuses is a step of every record, and a plugin that records steps of its own is not a step.
func TestAdmit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var ran []string
		plugin := func(name string, took time.Duration, refuses bool) kind.Plugin {
			return kind.Plugin{Name: name, Admit: func(_ context.Context, a *kind.Admission) error {
				ran = append(ran, name)
				time.Sleep(took)
				if name == "calls" {
					a.Clock.AddStep(hop.Step{Name: "webhook x"})
				}
				if refuses {
					return errors.New("no")
				}
				return nil
			}}
		}
		plugins := []kind.Plugin{plugin("quick", 0, false), plugin("slow", time.Millisecond, false), plugin("calls", time.Second, false),
			plugin("refuses", 0, true), plugin("never", 0, false)}
		clock := func(detailed bool) *hop.Clock {
			c := &hop.Clock{Detailed: detailed}
			c.Begin(time.Now())
			return c
		}
		for want, c := range map[string]*hop.Clock{
			"[mutate slow 0s 1ms false][ webhook x 0s 0s false][mutate refuses 1.001s 0s true]": clock(true),
			"[ webhook x 0s 0s false][mutate refuses 1.001s 0s true]":                           clock(false),
			"": nil,
		} {
			ran = nil
			if c != nil {
				c.Begin(time.Now())
			}
			err := Admit(t.Context(), hop.Mutate, plugins, &kind.Admission{Clock: c})
			if err == nil || strings.Join(ran, " ") != "quick slow calls refuses" {
				t.Errorf("%v after %v", err, ran)
			}
			got := ""
			if c != nil {
				for _, s := range c.Record.Steps {
					got += fmt.Sprintf("[%s %s %v %v %t]", s.Hop, s.Name, s.After, s.Took, s.Failed)
				}
			}
			if got != want {
				t.Errorf("got  %s\nwant %s", got, want)
			}
		}
	})
}

// TestMutateTwice checks that plugins run a second time when one asks for it, and only then.
func TestMutateTwice(t *testing.T) {
	for _, again := range []bool{false, true} {
		runs := 0
		p := kind.Plugin{Admit: func(_ context.Context, a *kind.Admission) error {
			if runs++; a.Reinvocation.IsSecondRun != (runs == 2) {
				t.Errorf("run %d is the second: %t", runs, a.Reinvocation.IsSecondRun)
			}
			if again {
				a.Reinvocation.Request()
			}
			return nil
		}}
		if err := Mutate(t.Context(), []kind.Plugin{p}, &kind.Admission{}); err != nil || (runs == 2) != again {
			t.Errorf("%d runs, %v", runs, err)
		}
	}
}
