package goprocess

import (
	"context"
	"log/slog"

	"k8s.io/klog/v2"
)

// RedirectKlog sends what libraries log by klog to the log of the process, at debug level: they report as an error what
// is none here, such as a stream that a client has closed.
func RedirectKlog(log *slog.Logger) { klog.SetSlogLogger(slog.New(detail{log.Handler()})) }

// detail is a handler that lowers every record to debug level.
type detail struct{ slog.Handler }

func (d detail) Enabled(ctx context.Context, _ slog.Level) bool {
	return d.Handler.Enabled(ctx, slog.LevelDebug)
}

// Handle checks the level again, because klog does not ask Enabled before it logs an error.
func (d detail) Handle(ctx context.Context, r slog.Record) error {
	if r.Level = slog.LevelDebug; !d.Enabled(ctx, r.Level) {
		return nil
	}
	return d.Handler.Handle(ctx, r)
}

func (d detail) WithAttrs(a []slog.Attr) slog.Handler { return detail{d.Handler.WithAttrs(a)} }
func (d detail) WithGroup(name string) slog.Handler   { return detail{d.Handler.WithGroup(name)} }
