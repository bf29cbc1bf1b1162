// Package audit stands between hops 2 and 3: it records who asked for what, and the outcome, as the audit policy of the
// cluster says.
//
// It owns the policy (which requests are recorded, and in how much detail), the audit record of a request from stage to
// stage, and the backends: the log file with its buffer and its rotated copies, and the webhook. It decides nothing
// about the requests themselves. The events are those of audit.k8s.io/v1, one JSON document on a line, so that the
// usual tools read them.
package audit

import (
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"k8s.io/apiserver/pkg/authentication/user"
)

// Config says what is recorded and where. A Path or a Hook is enough.
type Config struct {
	// Path is the file of the events; "-" is Stdout, and empty is no file.
	Path string
	// Hook sends the events to a webhook; nil for none.
	Hook *Hook
	// Policy is the YAML or JSON of an audit.k8s.io/v1 Policy; nil records the metadata of everything but health
	// checks.
	Policy []byte
	Log    *slog.Logger
	Stdout io.Writer

	// MaxSize is the size at which a file is rotated, and Keep how many rotated files stay; 0 means 100 MiB and 10.
	MaxSize int64
	Keep    int
	// Buffer is the limit of the bytes that wait to be written, and Wait how long a request waits for room in it before
	// its event is dropped; 0 means 16 MiB and one second.
	Buffer int
	Wait   time.Duration
}

func (c Config) withDefaults() Config {
	if c.MaxSize == 0 {
		c.MaxSize = 100 << 20
	}
	if c.Keep == 0 {
		c.Keep = 10
	}
	if c.Buffer == 0 {
		c.Buffer = 16 << 20
	}
	if c.Wait == 0 {
		c.Wait = time.Second
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.Stdout == nil {
		c.Stdout = os.Stdout
	}
	return c
}

// Log is an open audit log. It is safe for concurrent use.
type Log struct {
	policy *policy
	buffer *fileBuffer // nil for no file
	sender *sender     // nil for no hook
	log    *slog.Logger

	events prometheus.Counter
	errors *prometheus.CounterVec
	levels *prometheus.CounterVec
}

// Open reads the policy and opens the file.
func Open(c Config) (*Log, error) {
	c = c.withDefaults()
	p := defaultPolicy()
	if c.Policy != nil {
		var err error
		if p, err = parsePolicy(c.Policy, c.Log); err != nil {
			return nil, fmt.Errorf("read the audit policy: %w", err)
		}
	}
	l := &Log{
		policy: p, log: c.Log,
		events: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "apiserver_audit_event_total", Help: "Counter of audit events generated and sent to the audit backend.",
		}),
		errors: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "apiserver_audit_error_total",
			Help: "Counter of audit events that failed to be audited properly. Plugin identifies the plugin affected by the error.",
		}, []string{"plugin"}),
		levels: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "apiserver_audit_level_total", Help: "Counter of policy levels for audit events (1 per request).",
		}, []string{"level"}),
	}
	if c.Hook != nil {
		l.sender = newSender(*c.Hook, func(n int, first bool, err error) { l.droppedBy("webhook", n, first, err) })
	}
	if c.Path == "" {
		return l, nil
	}
	out := io.WriteCloser(withoutClose{c.Stdout})
	if c.Path != "-" {
		f, err := openFile(c.Path, c.MaxSize, c.Keep, c.Log)
		if err != nil {
			_ = l.Close()
			return nil, fmt.Errorf("open the audit log: %w", err)
		}
		out = f
	}
	l.buffer = newFileBuffer(out, c.Buffer, c.Wait, l.dropped)
	return l, nil
}

// dropped counts events that could not be written. Only the first of a series is logged.
func (l *Log) dropped(n int, first bool, err error) { l.droppedBy("log", n, first, err) }

func (l *Log) droppedBy(plugin string, n int, first bool, err error) {
	l.errors.WithLabelValues(plugin).Add(float64(n))
	if first {
		l.log.Error("audit events are being dropped", "backend", plugin, "err", err)
	}
}

// put hands an event to the file and to the webhook, and reports whether its request may proceed.
func (l *Log) put(line []byte) bool {
	l.events.Inc()
	if l.buffer != nil {
		l.buffer.put(line)
	}
	return l.sender == nil || l.sender.put(line)
}

// Collectors returns the log's metrics.
func (l *Log) Collectors() []prometheus.Collector {
	return []prometheus.Collector{l.events, l.errors, l.levels}
}

// Close flushes the buffers and closes the file. Requests that end later are not recorded.
func (l *Log) Close() error {
	if l.sender != nil {
		l.sender.close()
	}
	if l.buffer == nil {
		return nil
	}
	return l.buffer.close()
}

// Request is what is known of a request when it arrives.
type Request struct {
	// ID is the Audit-Id that the client gets.
	ID    string
	Start time.Time
	// HTTP is nil for a request from this process; then URI and Agent are used instead of its URL and user agent.
	HTTP       *http.Request
	URI, Agent string

	User user.Info // nil when the client could not be authenticated
	Verb string
	Path string // decides requests that are not for a resource

	IsResource                                             bool
	Namespace, Group, Version, Resource, Subresource, Name string
	// Confidential says that the bodies hold tokens or the values of Secrets: they are never recorded.
	Confidential bool
	// LongRunning says that the response is a stream, such as a watch, so that its start is an event too.
	LongRunning bool
}

// Begin starts the audit record of a request. It returns nil, which is valid to use, when the policy wants none.
func (l *Log) Begin(r Request) *Record {
	t := l.open(&r)
	if !t.emit(auditv1.StageRequestReceived) {
		t.failed = true
	}
	return t
}

// Refuse starts the audit record of a request whose client could not be authenticated. Its response is its only event.
func (l *Log) Refuse(r Request) *Record {
	r.User, r.LongRunning = nil, true
	t := l.open(&r)
	if t != nil {
		t.refused = true
	}
	return t
}

func (l *Log) open(r *Request) *Record {
	v := l.policy.decide(r)
	if r.Confidential && v.atLeast(auditv1.LevelRequest) {
		v.level = auditv1.LevelMetadata
	}
	l.levels.WithLabelValues(string(v.level)).Inc()
	if v.level == auditv1.LevelNone {
		return nil
	}
	return newRecord(l, v, r)
}

type withoutClose struct{ io.Writer }

// Close leaves the writer open, because the caller owns it.
func (withoutClose) Close() error { return nil }
