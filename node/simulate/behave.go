package simulate

import (
	"path"
	"regexp"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"proa.dev/kinds/lib/duration"
)

// Behaviour says how simulated Pods behave if they do not say so themselves. The zero value starts everything at once.
type Behaviour struct {
	// Start is how long a bound Pod takes until its containers run, Ready until they are ready after that, and Stop how
	// long they take to stop, within their grace period.
	Start, Ready, Stop time.Duration
	// Unknown are patterns, as in path.Match, of images that cannot be pulled; nil for DefaultUnknown.
	Unknown []string
	// Quiet records no Events about Pods.
	Quiet bool
}

// DefaultUnknown returns patterns of images that tests use where none must exist.
func DefaultUnknown() []string {
	return []string{"*:404", "*:non-existent", "*:nonexistent", "*:does-not-exist", "*invalid.registry*", "invalid/*", "*/invalid-image*",
		"*/nonexistent*"}
}

// Annotations of Pods that take precedence over their commands.
const (
	// ExitAnnotation is the exit code of the containers, RunAnnotation the time after which they end, as in "10s";
	// without ExitAnnotation they run for ever.
	ExitAnnotation = "simulate.proa.dev/exit-code"
	RunAnnotation  = "simulate.proa.dev/run-for"
	// StartAnnotation, ReadyAnnotation and StopAnnotation are delays, as in Behaviour.
	StartAnnotation = "simulate.proa.dev/start-after"
	ReadyAnnotation = "simulate.proa.dev/ready-after"
	StopAnnotation  = "simulate.proa.dev/stop-after"
)

func delay(p *corev1.Pod, annotation string, otherwise time.Duration) time.Duration {
	if d, err := time.ParseDuration(p.Annotations[annotation]); err == nil && d >= 0 {
		return d
	}
	return otherwise
}

// life is what a container does: it ends with an exit code after a time, or runs for ever.
type life struct {
	ends  bool
	after time.Duration
	code  int32
}

var (
	sleeps = regexp.MustCompile(`\bsleep\s+(\d+)(s|m|h)?\b`)
	exits  = regexp.MustCompile(`\bexit\s+(\d+)\b`)
)

// lifeOf determines from a Pod's annotations, or from a container's command, what the container does. It knows sleep,
// exit, true, false, echo and the like; all other commands run for ever, as servers do.
func lifeOf(p *corev1.Pod, c *corev1.Container) life {
	run := delay(p, RunAnnotation, 0)
	if code, err := strconv.ParseInt(p.Annotations[ExitAnnotation], 10, 32); err == nil {
		return life{true, run, int32(code)}
	}
	words := append(append([]string{}, c.Command...), c.Args...)
	if len(words) == 0 {
		return life{}
	}
	text := strings.Join(words, " ")
	var l life
	if m := sleeps.FindStringSubmatch(text); m != nil {
		n, err := strconv.ParseInt(m[1], 10, 32)
		if err != nil {
			return life{}
		}
		l.ends, l.after = true, duration.FromSeconds(n*map[string]int64{"": 1, "s": 1, "m": 60, "h": 3600}[m[2]])
	}
	if m := exits.FindAllStringSubmatch(text, -1); m != nil {
		n, err := strconv.ParseInt(m[len(m)-1][1], 10, 32)
		if err != nil {
			return life{}
		}
		l.ends, l.code = true, int32(n)
	}
	switch path.Base(words[0]) {
	case "true", "echo", "date", "ls", "cat", "printenv", "env", "id", "hostname":
		l.ends = true
	case "false":
		l.ends, l.code = true, 1
	case "sh", "bash", "ash":
		// A shell that neither loops nor waits ends, whatever it did.
		if !strings.Contains(text, "while") && !strings.Contains(text, "until") && !strings.Contains(text, "wait") &&
			!strings.Contains(text, "tail -f") && len(words) > 1 {
			l.ends = true
		}
	}
	if l.ends && strings.Contains(text, "while true") || strings.Contains(text, "while :") {
		return life{}
	}
	return l
}

// unknown reports whether an image cannot be pulled.
func (b *Behaviour) unknown(image string) bool {
	patterns := b.Unknown
	if patterns == nil {
		patterns = DefaultUnknown()
	}
	for _, p := range patterns {
		if matches(p, image) {
			return true
		}
	}
	return false
}

// matches is path.Match in which * also matches slashes.
func matches(pattern, image string) bool {
	ok, err := path.Match(strings.ReplaceAll(pattern, "/", "\x01"), strings.ReplaceAll(image, "/", "\x01"))
	return ok && err == nil
}
