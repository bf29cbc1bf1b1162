package why

import (
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"proa.dev/why/lookup"
)

// reader answers one question. It remembers the answers about Pods, and the EndpointSlices of Services.
type reader struct {
	*Asker
	*lookup.Reader
	pods map[types.UID]*Answer
	// slices are the names of the EndpointSlices of the Services that were explained.
	slices map[Ref][]string
}

func (k *Asker) reader() *reader {
	return &reader{Asker: k, Reader: lookup.New(k.Cluster), pods: map[types.UID]*Answer{}, slices: map[Ref][]string{}}
}

// unseen lists what could not be read.
func (r *reader) unseen() []string {
	out := r.Unseen()
	for i := range out {
		out[i] = oneLine(out[i])
	}
	return out
}

// selected returns the items whose labels match a selector.
func selected[T any](items []T, selector labels.Selector, labelsOf func(*T) map[string]string) (out []*T) {
	for i := range items {
		if selector.Matches(labels.Set(labelsOf(&items[i]))) {
			out = append(out, &items[i])
		}
	}
	return out
}

func podLabels(p *corev1.Pod) map[string]string { return p.Labels }

func podRef(p *corev1.Pod) Ref { return Ref{Kind: "Pod", Namespace: p.Namespace, Name: p.Name} }

// ago says how long something has been so.
func (r *reader) ago(t time.Time) string {
	d := r.Now.Sub(t)
	switch {
	case t.IsZero():
		return "some time"
	case d < time.Second:
		return "less than a second"
	case d < 2*time.Minute:
		return plural(int(d.Seconds()), "second")
	case d < 2*time.Hour:
		return plural(int(d.Minutes()), "minute")
	case d < 48*time.Hour:
		return plural(int(d.Hours()), "hour")
	}
	return plural(int(d.Hours()/24), "day")
}

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// maxMessage bounds how much of a message of somebody else an answer repeats, in bytes.
const maxMessage = 1000

// sentence makes a message of somebody else fit for the inside of a sentence: without a full stop at its end, on one line.
func sentence(text string) string {
	return strings.TrimRight(oneLine(text), ". ")
}

// oneLine makes white space of any kind a blank, and cuts a text that is too long.
func oneLine(text string) string {
	return strings.Join(strings.Fields(shorten(text)), " ")
}

// shorten cuts a text that is too long, at the beginning of a character.
func shorten(text string) string {
	if len(text) <= maxMessage {
		return text
	}
	end := maxMessage
	for end > 0 && !utf8.RuneStart(text[end]) {
		end--
	}
	return fmt.Sprintf("%s … (%d bytes in all)", text[:end], len(text))
}

func inNamespace(namespace string) string {
	if namespace == "" {
		return ""
	}
	return " -n " + namespace
}
