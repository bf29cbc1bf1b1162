package hop

import (
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// The bounds of one record. What is longer is cut off.
const (
	// MaxSteps is how many steps a record has at most.
	MaxSteps = 64
	// MaxName is the length of the longest name of an object, a user or a step, in bytes.
	MaxName = 256
	// MaxText is the length of the longest detail, error and text that a client says of itself, in bytes.
	MaxText = 256
	// MaxBody is how many bytes of a body are kept.
	MaxBody = 16 << 10
	// ShortestWait is the shortest time that counts as waiting: what is shorter costs more to record than it tells.
	ShortestWait = 20 * time.Microsecond
	// ShortestStep is the shortest time of a step of the server itself.
	ShortestStep = 50 * time.Microsecond
)

// Printable returns a text with at most limit bytes in which every character can be printed on one line: others, such as
// control characters and the direction marks of Unicode, become question marks.
func Printable(s string, limit int) string {
	plain := len(s) <= limit
	for i := 0; plain && i < len(s); i++ {
		plain = s[i] >= ' ' && s[i] <= '~'
	}
	if plain {
		return s
	}
	var out strings.Builder
	for _, r := range s {
		if r == utf8.RuneError || !unicode.IsPrint(r) {
			r = '?'
		}
		if out.Len()+utf8.RuneLen(r) > limit {
			break
		}
		out.WriteRune(r)
	}
	return out.String()
}

// truncate returns the beginning of a text, of at most limit bytes. A text that was cut is copied, so that the rest of it is
// not kept in memory.
func truncate(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	return strings.Clone(strings.ToValidUTF8(s[:limit], ""))
}

// Bound cuts what is too long in a record. The record must not be shared.
func (r *Record) Bound() {
	if len(r.UID)|len(r.Verb)|len(r.Group)|len(r.Resource)|len(r.Subresource)|len(r.Namespace)|len(r.Name)|len(r.User)|len(r.CauseUID)|
		len(r.Process) > MaxName {
		for _, s := range []*string{(*string)(&r.UID), &r.Verb, &r.Group, &r.Resource, &r.Subresource, &r.Namespace, &r.Name, &r.User,
			(*string)(&r.CauseUID), &r.Process} {
			*s = truncate(*s, MaxName)
		}
	}
	r.Error = Printable(r.Error, MaxText)
	if o := r.Origin; o != nil && len(o.Agent)|len(o.AuditID)|len(o.Session)|len(o.Command)|len(o.TraceParent) > MaxText {
		r.Origin = &Origin{truncate(o.Agent, MaxText), truncate(o.AuditID, MaxText), truncate(o.Session, MaxText),
			truncate(o.Command, MaxText), o.Began, truncate(o.TraceParent, MaxText)}
	}
	if len(r.Steps) > MaxSteps {
		r.Steps = append([]Step(nil), r.Steps[:MaxSteps]...)
	}
	for i := range r.Steps {
		// Steps that were cut before may be read by others now, so they are only changed when they must be.
		if s := &r.Steps[i]; len(s.Name) > MaxName {
			s.Name = truncate(s.Name, MaxName)
		}
		if s := &r.Steps[i]; s.Detail != "" {
			if d := Printable(s.Detail, MaxText); d != s.Detail {
				s.Detail = d
			}
		}
	}
}

// The sizes of the parts of a record in memory, in bytes.
const (
	slotSize   = 576
	stepSize   = 80
	originSize = 112
	wireSize   = 136
	// jsonSize is the size of a function that turns a body into JSON.
	jsonSize = 80
)

// size returns about how many bytes a record takes in a Recorder, without its Wire.
func (r *Record) size() int {
	n := slotSize + len(r.UID) + len(r.Namespace) + len(r.Name) + len(r.User) + len(r.CauseUID) + len(r.Error) +
		len(r.Process) + len(r.Verb) + len(r.Group) + len(r.Resource) + len(r.Subresource)
	if o := r.Origin; o != nil {
		n += originSize + len(o.Agent) + len(o.AuditID) + len(o.Session) + len(o.Command) + len(o.TraceParent)
	}
	n += cap(r.Steps) * stepSize
	for i := range r.Steps {
		n += len(r.Steps[i].Name) + len(r.Steps[i].Detail)
	}
	return n
}
