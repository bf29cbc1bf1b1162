// Package audit stands between hops 2 and 3: it writes down who asked for what, and what came of it, as the audit policy
// of the cluster says.
//
// It owns the policy (which requests leave a trail, and how much of them), the trail of a request from stage to stage, and
// the file the events go to, with its buffer and its old copies, or the webhook. It judges nobody: what is recorded was decided elsewhere.
// The events are those of audit.k8s.io/v1, one JSON document a line, so that the usual tools read them.
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
	// Hook sends the events to somebody else; nil for nobody.
	Hook *Hook
	// Policy is the YAML or JSON of an audit.k8s.io/v1 Policy; nil records the metadata of everything but health checks.
	Policy []byte
	Log    *slog.Logger
	Stdout io.Writer

	// MaxSize is the size at which a file is put aside, and Keep how many of those stay; 0 means 100 MiB and 10.
	MaxSize int64
	Keep    int
	// Buffer bounds the bytes that wait to be written, and Wait how long a request waits for room in it before its
	// event is dropped; 0 means 16 MiB and one second.
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
	spool  *spool  // nil for no file
	sender *sender // nil for no hook
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
		l.sender = newSender(*c.Hook, func(n int, first bool, err error) { l.lostBy("webhook", n, first, err) })
	}
	if c.Path == "" {
		return l, nil
	}
	out := io.WriteCloser(keptOpen{c.Stdout})
	if c.Path != "-" {
		f, err := openFile(c.Path, c.MaxSize, c.Keep, c.Log)
		if err != nil {
			_ = l.Close()
			return nil, fmt.Errorf("open the audit log: %w", err)
		}
		out = f
	}
	l.spool = newSpool(out, c.Buffer, c.Wait, l.lost)
	return l, nil
}

// lost counts events that will not be read by anybody. Only the first of a row is worth a line in the server's log.
func (l *Log) lost(n int, first bool, err error) { l.lostBy("log", n, first, err) }

func (l *Log) lostBy(plugin string, n int, first bool, err error) {
	l.errors.WithLabelValues(plugin).Add(float64(n))
	if first {
		l.log.Error("audit events are being lost", "by", plugin, "err", err)
	}
}

// put hands an event to the file and to the hook, and says whether its request may go on.
func (l *Log) put(line []byte) bool {
	l.events.Inc()
	if l.spool != nil {
		l.spool.put(line)
	}
	return l.sender == nil || l.sender.put(line)
}

// Collectors are the log's metrics.
func (l *Log) Collectors() []prometheus.Collector {
	return []prometheus.Collector{l.events, l.errors, l.levels}
}

// Close writes and sends what waits and closes the file. Requests that end later leave no trail.
func (l *Log) Close() error {
	if l.sender != nil {
		l.sender.close()
	}
	if l.spool == nil {
		return nil
	}
	return l.spool.close()
}

// Request is what is known of a request when it arrives.
type Request struct {
	// ID is the Audit-Id that the client is told.
	ID    string
	Start time.Time
	// HTTP is nil for a request from this process; then URI and Agent stand for what it would have said.
	HTTP       *http.Request
	URI, Agent string

	User user.Info // nil when the client could not be recognised
	Verb string
	Path string // decides requests that are not for a resource

	IsResource                                             bool
	Namespace, Group, Version, Resource, Subresource, Name string
	// Confidential says that the bodies hold tokens or the values of Secrets: no policy gets them.
	Confidential bool
	// Long says that the answer goes on for a while, as that of a watch, so that its beginning is an event too.
	Long bool
}

// Begin opens the trail of a request. It is nil, which is good to use, when the policy wants none.
func (l *Log) Begin(r Request) *Trail {
	t := l.open(&r)
	if !t.emit(auditv1.StageRequestReceived) {
		t.untold = true
	}
	return t
}

// Refuse opens the trail of a request whose client could not be recognised. Its answer is its only event.
func (l *Log) Refuse(r Request) *Trail {
	r.User, r.Long = nil, true
	t := l.open(&r)
	if t != nil {
		t.refused = true
	}
	return t
}

func (l *Log) open(r *Request) *Trail {
	v := l.policy.judge(r)
	if r.Confidential && v.atLeast(auditv1.LevelRequest) {
		v.level = auditv1.LevelMetadata
	}
	l.levels.WithLabelValues(string(v.level)).Inc()
	if v.level == auditv1.LevelNone {
		return nil
	}
	return newTrail(l, v, r)
}

type keptOpen struct{ io.Writer }

// Close leaves the writer, which is somebody else's, open.
func (keptOpen) Close() error { return nil }
