package store

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// newZap returns a logger for etcd that writes its warnings and errors to log, and calls f when etcd logs a fatal
// error.
func newZap(log *slog.Logger, f *fatal) *zap.Logger {
	return zap.New(&slogCore{log: log}, zap.WithFatalHook(f))
}

// fatal handles fatal errors of etcd. While etcd starts, it panics, which is turned into an error. Later it ends the
// process: a panic could be recovered, as an HTTP server does for the panic of one request, and everything would wait
// for etcd for ever.
type fatal struct{ started atomic.Bool }

// OnWrite is called by zap after it has logged the fatal error.
func (f *fatal) OnWrite(e *zapcore.CheckedEntry, _ []zapcore.Field) {
	if !f.started.Load() {
		panic(e.Message)
	}
	exitProcess(errors.New(e.Message))
}

// exitProcess ends the process by a panic in a goroutine of its own, since a panic of the calling goroutine could be
// recovered.
func exitProcess(err error) {
	go func() { panic(fmt.Errorf("the store cannot go on; a new start goes on from its log: %w", err)) }()
	select {}
}

// slogCore is a zap core that writes warnings and errors to slog.
type slogCore struct {
	log    *slog.Logger
	fields []zapcore.Field
}

func (c *slogCore) Enabled(l zapcore.Level) bool { return l >= zapcore.WarnLevel }

func (c *slogCore) With(fields []zapcore.Field) zapcore.Core {
	all := make([]zapcore.Field, 0, len(c.fields)+len(fields))
	return &slogCore{log: c.log, fields: append(append(all, c.fields...), fields...)}
}

func (c *slogCore) Check(e zapcore.Entry, ce *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	if c.Enabled(e.Level) {
		return ce.AddCore(e, c)
	}
	return ce
}

func (c *slogCore) Write(e zapcore.Entry, fields []zapcore.Field) error {
	enc := zapcore.NewMapObjectEncoder()
	for _, f := range c.fields {
		f.AddTo(enc)
	}
	for _, f := range fields {
		f.AddTo(enc)
	}
	attrs := make([]slog.Attr, 0, 1+len(enc.Fields))
	attrs = append(attrs, slog.String("etcd", e.Message))
	for k, v := range enc.Fields {
		attrs = append(attrs, slog.Any(k, v))
	}
	level := slog.LevelWarn
	if expected(e.Message) {
		level = slog.LevelDebug
	} else if e.Level >= zapcore.ErrorLevel {
		level = slog.LevelError
	}
	c.log.LogAttrs(context.Background(), level, "etcd reports", attrs...)
	return nil
}

// expected reports whether a message is logged by every new member without users or peers, or about each of many requests while a
// member does not answer, and can be ignored.
func expected(message string) bool {
	return message == "retrying of unary invoker failed" || message == "simple token is not cryptographically signed" ||
		message == "use default bcrypt cost instead of the invalid given cost" ||
		message == "Failed to detect storage schema version. Please wait till wal snapshot before upgrading cluster."
}

func (c *slogCore) Sync() error { return nil }
