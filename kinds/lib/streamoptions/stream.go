// Package streamoptions parses the options of streams to Pods: of logs, of commands and of forwarded ports. They are query
// parameters of requests to the API server, and from there to the node.
package streamoptions

import (
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// ParseLog parses the options of a log.
func ParseLog(q url.Values) (*corev1.PodLogOptions, error) {
	o := &corev1.PodLogOptions{
		Container: q.Get("container"), Follow: parseBool(q, "follow"), Previous: parseBool(q, "previous"),
		Timestamps:                   parseBool(q, "timestamps"),
		InsecureSkipTLSVerifyBackend: parseBool(q, "insecureSkipTLSVerifyBackend"),
	}
	for name, into := range map[string]**int64{"sinceSeconds": &o.SinceSeconds, "tailLines": &o.TailLines, "limitBytes": &o.LimitBytes} {
		if !q.Has(name) {
			continue
		}
		n, err := strconv.ParseInt(q.Get(name), 10, 64)
		if err != nil {
			return nil, err // its text is that of upstream
		}
		*into = &n
	}
	if q.Has("sinceTime") {
		t, err := time.Parse(time.RFC3339, q.Get("sinceTime"))
		if err != nil && q.Get("sinceTime") != "" {
			return nil, err // its text is that of upstream
		}
		o.SinceTime = &metav1.Time{Time: t}
	}
	if q.Has("stream") {
		s := q.Get("stream")
		o.Stream = &s
	}
	return o, nil
}

// LogQuery returns the query that Log parses, without the container.
func LogQuery(o *corev1.PodLogOptions) url.Values {
	q := url.Values{}
	for name, on := range map[string]bool{"follow": o.Follow, "previous": o.Previous, "timestamps": o.Timestamps} {
		if on {
			q.Set(name, "true")
		}
	}
	for name, n := range map[string]*int64{"sinceSeconds": o.SinceSeconds, "tailLines": o.TailLines, "limitBytes": o.LimitBytes} {
		if n != nil {
			q.Set(name, strconv.FormatInt(*n, 10))
		}
	}
	if o.SinceTime != nil {
		q.Set("sinceTime", o.SinceTime.Format(time.RFC3339))
	}
	if o.Stream != nil {
		q.Set("stream", *o.Stream)
	}
	return q
}

// ValidateLog validates the options of a log.
func ValidateLog(o *corev1.PodLogOptions) (errs field.ErrorList) {
	if o.TailLines != nil && *o.TailLines < 0 {
		errs = append(errs, field.Invalid(field.NewPath("tailLines"), *o.TailLines, "must be greater than or equal to 0"))
	}
	if o.LimitBytes != nil && *o.LimitBytes < 1 {
		errs = append(errs, field.Invalid(field.NewPath("limitBytes"), *o.LimitBytes, "must be greater than 0"))
	}
	switch {
	case o.SinceSeconds != nil && o.SinceTime != nil:
		errs = append(errs, field.Forbidden(field.NewPath(""), "at most one of `sinceTime` or `sinceSeconds` may be specified"))
	case o.SinceSeconds != nil && *o.SinceSeconds < 1:
		errs = append(errs, field.Invalid(field.NewPath("sinceSeconds"), *o.SinceSeconds, "must be greater than 0"))
	}
	if o.Stream == nil {
		return errs
	}
	switch *o.Stream {
	case corev1.LogStreamAll, corev1.LogStreamStdout, corev1.LogStreamStderr:
	default:
		all := []string{corev1.LogStreamAll, corev1.LogStreamStdout, corev1.LogStreamStderr}
		errs = append(errs, field.NotSupported(field.NewPath("stream"), *o.Stream, all))
	}
	if *o.Stream != corev1.LogStreamAll && o.TailLines != nil {
		errs = append(errs, field.Forbidden(field.NewPath(""), "`tailLines` and specific `stream` are mutually exclusive for now"))
	}
	return errs
}

// Command is the options of a command in a container, or, without the command, those of attaching to one.
type Command struct {
	Container             string
	Stdin, Stdout, Stderr bool
	TTY                   bool
	Args                  []string
}

// ParseExec parses the options of a command.
func ParseExec(q url.Values) Command {
	return Command{
		Container: q.Get("container"), Stdin: parseBool(q, "stdin"), Stdout: parseBool(q, "stdout"), Stderr: parseBool(q, "stderr"),
		TTY:  parseBool(q, "tty"),
		Args: q["command"],
	}
}

// ParseAttach parses the options of attaching to a container.
func ParseAttach(q url.Values) Command {
	c := ParseExec(q)
	c.Args = nil
	return c
}

// APIQuery returns the query that Exec and Attach parse.
func (c Command) APIQuery() url.Values {
	q := url.Values{}
	for name, on := range map[string]bool{"stdin": c.Stdin, "stdout": c.Stdout, "stderr": c.Stderr, "tty": c.TTY} {
		if on {
			q.Set(name, "true")
		}
	}
	if c.Container != "" {
		q.Set("container", c.Container)
	}
	if len(c.Args) > 0 {
		q["command"] = c.Args
	}
	return q
}

// NodeQuery returns the query of the request to the node, which OfNode parses.
func (c Command) NodeQuery() url.Values {
	q := url.Values{}
	for name, on := range map[string]bool{"input": c.Stdin, "output": c.Stdout, "error": c.Stderr, "tty": c.TTY} {
		if on {
			q.Set(name, "1")
		}
	}
	if len(c.Args) > 0 {
		q["command"] = c.Args
	}
	return q
}

// OfNode parses the query of a request to the node. With a terminal there is no separate stderr.
func OfNode(q url.Values) Command {
	c := Command{Stdin: q.Get("input") == "1", Stdout: q.Get("output") == "1", Stderr: q.Get("error") == "1", TTY: q.Get("tty") == "1",
		Args: q["command"]}
	c.Stderr = c.Stderr && !c.TTY
	return c
}

// ParsePorts parses the ports to forward.
func ParsePorts(q url.Values) (out []int32, err error) {
	for _, list := range q["ports"] {
		for text := range strings.SplitSeq(list, ",") {
			n, err := strconv.ParseUint(text, 10, 16)
			if err != nil {
				return nil, fmt.Errorf("cannot convert to []int32: %w", err)
			}
			out = append(out, int32(n))
		}
	}
	return out, nil
}

// parseBool parses a parameter as upstream does: it is true if it is present, unless its value is 0 or false.
func parseBool(q url.Values, name string) bool {
	v, there := q[name]
	if !there || len(v) == 0 {
		return false
	}
	return v[0] != "0" && !strings.EqualFold(v[0], "false")
}
