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

// newZap gives etcd a logger whose warnings and errors end up in log, and what etcd does when it cannot go on.
func newZap(log *slog.Logger, f *fatal) *zap.Logger {
	return zap.New(&slogCore{log: log}, zap.WithFatalHook(f))
}

// fatal is how etcd ends when it cannot go on. While it starts it panics, which is turned into an error. Later it ends the
// process, and must: whoever goes on without it, as an HTTP server does after a panic of one request, would wait for ever.
type fatal struct{ started atomic.Bool }

// OnWrite is called when the reason has been logged.
func (f *fatal) OnWrite(e *zapcore.CheckedEntry, _ []zapcore.Field) {
	if !f.started.Load() {
		panic(e.Message)
	}
	lost(errors.New(e.Message))
}

// lost ends the process. A panic of the calling goroutine could be recovered from.
func lost(err error) {
	go func() { panic(fmt.Errorf("the store cannot go on; a new start goes on from its log: %w", err)) }()
	select {}
}

// slogCore is a zap core that writes to slog what is worth a reader's time.
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

// expected says that a message belongs to every first start of a member without users or peers, and means nothing.
func expected(message string) bool {
	return message == "simple token is not cryptographically signed" || message == "use default bcrypt cost instead of the invalid given cost" ||
		message == "Failed to detect storage schema version. Please wait till wal snapshot before upgrading cluster."
}

func (c *slogCore) Sync() error { return nil }
