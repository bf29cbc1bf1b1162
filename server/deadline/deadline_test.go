package deadline

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// TestSameAsContextWithDeadline checks that the methods of a Context, called in any order, return the same as those of
// context.WithTimeout.
func TestSameAsContextWithDeadline(t *testing.T) {
	type key struct{}
	ours := func(ctx context.Context) (context.Context, func()) {
		l := With(ctx, time.Now().Add(time.Minute))
		return l, l.Cancel
	}
	library := func(ctx context.Context) (context.Context, func()) {
		c, stop := context.WithTimeout(ctx, time.Minute)
		return c, stop
	}
	for name, test := range map[string]func(ctx context.Context, end, parent func()) error{
		"alive":         func(ctx context.Context, _, _ func()) error { return ctx.Err() },
		"late":          func(ctx context.Context, _, _ func()) error { time.Sleep(2 * time.Minute); return ctx.Err() },
		"waits":         func(ctx context.Context, _, _ func()) error { <-ctx.Done(); return ctx.Err() },
		"ended":         func(ctx context.Context, end, _ func()) error { end(); return ctx.Err() },
		"ended, waits":  func(ctx context.Context, end, _ func()) error { end(); <-ctx.Done(); return ctx.Err() },
		"ended late":    func(ctx context.Context, end, _ func()) error { time.Sleep(time.Hour); end(); return ctx.Err() },
		"waited, ended": func(ctx context.Context, end, _ func()) error { done := ctx.Done(); end(); <-done; return ctx.Err() },
		"parent":        func(ctx context.Context, _, parent func()) error { parent(); return ctx.Err() },
		"parent, waits": func(ctx context.Context, _, parent func()) error { parent(); <-ctx.Done(); return ctx.Err() },
		"cause":         func(ctx context.Context, _, parent func()) error { parent(); <-ctx.Done(); return context.Cause(ctx) },
		"child": func(ctx context.Context, _, _ func()) error {
			child, stop := context.WithCancel(ctx)
			defer stop()
			<-child.Done()
			return child.Err()
		},
		"deadline": func(ctx context.Context, _, _ func()) error {
			at, _ := ctx.Deadline()
			return errors.New(time.Until(at).String())
		},
		"value": func(ctx context.Context, _, _ func()) error {
			before, _ := ctx.Value(key{}).(string)
			ctx.Done()
			after, _ := ctx.Value(key{}).(string)
			return errors.New(before + after)
		},
	} {
		for _, parentTimeout := range []time.Duration{time.Second, time.Hour} {
			t.Run(name+" under "+parentTimeout.String(), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					run := func(newContext func(context.Context) (context.Context, func())) error {
						parent, cancel := context.WithCancelCause(context.WithValue(t.Context(), key{}, "v"))
						defer cancel(nil)
						timed, stop := context.WithTimeout(parent, parentTimeout)
						defer stop()
						ctx, end := newContext(timed)
						defer end()
						return test(ctx, end, func() { cancel(errors.New("away")) })
					}
					got, want := run(ours), run(library)
					if (got == nil) != (want == nil) || got != nil && got.Error() != want.Error() {
						t.Errorf("%v, want %v", got, want)
					}
				})
			})
		}
	}
}
