package goprocess

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"
	"unicode/utf8"
)

const (
	// maxLogValue is how many bytes of a value are logged, maxLogStack the same for the stack of a panic.
	maxLogValue, maxLogStack = 1 << 10, 16 << 10
	// leftOutPause is the time after which it is said how many lines were left out.
	leftOutPause = 10 * time.Second
	// logBurst is how many lines with the same message are logged at once; after that there is one more every logPause.
	logBurst, logPause = 50, time.Second
	// maxLogMessages is how many messages are told apart; all further ones count as one.
	maxLogMessages = 1024
	// otherMessages is what those count as.
	otherMessages = "lines with other messages"
)

// BoundedLog returns a handler that cuts long values and limits the rate of lines with the same message, so that clients
// whose requests are logged can neither fill the disk nor push evidence out of the log. What was left out is said some
// seconds later. Lines of debug level are only cut.
func BoundedLog(h slog.Handler) slog.Handler {
	return &boundedLog{h, &logRates{out: h, messages: map[string]*logRate{}}}
}

type boundedLog struct {
	slog.Handler
	rates *logRates
}

// Handle logs a line, unless there were too many of its message.
func (b *boundedLog) Handle(ctx context.Context, r slog.Record) error {
	if r.Level > slog.LevelDebug && !b.rates.allow(r.Message, time.Now()) {
		return nil
	}
	out := slog.NewRecord(r.Time, r.Level, cutText(r.Message, maxLogValue), r.PC)
	r.Attrs(func(a slog.Attr) bool {
		out.AddAttrs(cutAttr(a))
		return true
	})
	return b.Handler.Handle(ctx, out)
}

// WithAttrs returns a handler with attributes.
func (b *boundedLog) WithAttrs(all []slog.Attr) slog.Handler {
	out := make([]slog.Attr, 0, len(all))
	for _, a := range all {
		out = append(out, cutAttr(a))
	}
	return &boundedLog{b.Handler.WithAttrs(out), b.rates}
}

// WithGroup returns a handler whose attributes are in a group.
func (b *boundedLog) WithGroup(name string) slog.Handler {
	return &boundedLog{b.Handler.WithGroup(name), b.rates}
}

// cutAttr cuts the value of an attribute.
func cutAttr(a slog.Attr) slog.Attr {
	limit := maxLogValue
	if a.Key == "stack" {
		limit = maxLogStack
	}
	v := a.Value.Resolve()
	switch v.Kind() {
	case slog.KindString:
		v = slog.StringValue(cutText(v.String(), limit))
	case slog.KindGroup:
		var all []slog.Attr
		for _, in := range v.Group() {
			all = append(all, cutAttr(in))
		}
		v = slog.GroupValue(all...)
	case slog.KindAny:
		if text := fmt.Sprintf("%+v", v.Any()); len(text) > limit {
			v = slog.StringValue(cutText(text, limit))
		}
	default: // numbers and times are short
	}
	return slog.Attr{Key: a.Key, Value: v}
}

// cutText cuts a text, and says how much was cut.
func cutText(text string, limit int) string {
	if len(text) <= limit {
		return text
	}
	n := limit
	for n > limit-utf8.UTFMax && !utf8.RuneStart(text[n]) {
		n--
	}
	return fmt.Sprintf("%s... (%d bytes more)", text[:n], len(text)-n)
}

// logRates counts the lines of each message.
type logRates struct {
	out      slog.Handler
	mu       sync.Mutex // guards messages
	messages map[string]*logRate
}

// logRate is how many lines of a message may still be logged since a time, and how many were left out.
type logRate struct {
	rest    int
	since   time.Time
	leftOut int
}

// allow reports whether one more line of a message may be logged.
func (l *logRates) allow(message string, now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	m := l.messages[message]
	if m == nil && len(l.messages) >= maxLogMessages {
		message = otherMessages
		m = l.messages[message]
	}
	if m == nil {
		m = &logRate{rest: logBurst, since: now}
		l.messages[message] = m
	}
	if more := int(now.Sub(m.since) / logPause); more > 0 {
		m.rest, m.since = min(m.rest+more, logBurst), m.since.Add(time.Duration(more)*logPause)
	}
	if m.rest > 0 {
		m.rest--
		return true
	}
	if m.leftOut++; m.leftOut == 1 {
		time.AfterFunc(leftOutPause, func() { l.report(message) })
	}
	return false
}

// report logs how many lines of a message were left out.
func (l *logRates) report(message string) {
	l.mu.Lock()
	m := l.messages[message]
	n := m.leftOut
	m.leftOut = 0
	l.mu.Unlock()
	r := slog.NewRecord(time.Now(), slog.LevelWarn, "lines were left out of the log, because there were too many with the same message", 0)
	r.AddAttrs(slog.String("message", cutText(message, maxLogValue)), slog.Int("lines", n))
	_ = l.out.Handle(context.Background(), r) // there is nowhere to report that the log cannot be written
}
