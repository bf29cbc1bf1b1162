package store

import (
	"context"
	"log/slog"
	"strings"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// newZap gives etcd a logger whose warnings and errors end up in log. A fatal message panics instead of
// ending the process, so that a failed start can be turned into an error; see boot.
func newZap(log *slog.Logger) *zap.Logger {
	return zap.New(&slogCore{log: log}, zap.WithFatalHook(zapcore.WriteThenPanic))
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
	switch message {
	case "simple token is not cryptographically signed", "use default bcrypt cost instead of the invalid given cost",
		"Failed to detect schema version", "failed to update storage version":
		return true
	}
	return strings.HasSuffix(message, "since there are still pending configuration changes to apply")
}

func (c *slogCore) Sync() error { return nil }
