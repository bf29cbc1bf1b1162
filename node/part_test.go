package node

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"
)

// TestPartIsStartedAgain checks that a part of the agent that ends, with or without an error, is started again until the
// agent ends, whether somebody tracks its parts or not.
func TestPartIsStartedAgain(t *testing.T) {
	for name, c := range map[string]Config{
		"alone": {Log: slog.New(slog.DiscardHandler)},
		"tracked": {RunPart: func(ctx context.Context, _ string, part func() error) {
			for ctx.Err() == nil {
				_ = part()
			}
		}},
	} {
		synctest.Test(t, func(t *testing.T) {
			ctx, stop := context.WithTimeout(t.Context(), time.Hour)
			defer stop()
			runs := 0
			(&Agent{Config: c}).runPart(ctx, "devices", func(ctx context.Context) error {
				if runs++; runs > 3 {
					<-ctx.Done()
				}
				return []error{nil, errors.New("no descriptors")}[runs%2]
			})
			if runs != 4 {
				t.Errorf("%s: the part ran %d times", name, runs)
			}
		})
	}
}
