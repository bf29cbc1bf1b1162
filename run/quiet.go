package run

import (
	"context"
	"log/slog"

	"k8s.io/klog/v2"
)

// Quiet leads what libraries log by themselves to the log of the process, as details: a stream that a client ended is an error
// to them and news to nobody.
func Quiet(log *slog.Logger) { klog.SetSlogLogger(slog.New(detail{log.Handler()})) }

// detail is a handler that takes everything for a detail.
type detail struct{ slog.Handler }

func (d detail) Enabled(ctx context.Context, _ slog.Level) bool {
	return d.Handler.Enabled(ctx, slog.LevelDebug)
}

// Handle asks once more: a library that has an error to tell does not.
func (d detail) Handle(ctx context.Context, r slog.Record) error {
	if r.Level = slog.LevelDebug; !d.Enabled(ctx, r.Level) {
		return nil
	}
	return d.Handler.Handle(ctx, r)
}

func (d detail) WithAttrs(a []slog.Attr) slog.Handler { return detail{d.Handler.WithAttrs(a)} }
func (d detail) WithGroup(name string) slog.Handler   { return detail{d.Handler.WithGroup(name)} }
