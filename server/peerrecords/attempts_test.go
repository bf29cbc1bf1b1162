package peerrecords

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"proa.dev/why/answer"
)

// scheduling lets a server know attempts; without any, its scheduler does not run.
func scheduling(p *Peers, known ...types.UID) *Peers {
	p.Attempt = func(pod types.UID) (*answer.Attempt, error) {
		if known == nil {
			return nil, errors.New("not running")
		}
		if !slices.Contains(known, pod) {
			return nil, nil
		}
		return &answer.Attempt{Message: "about " + string(pod), Nodes: []answer.NodeReason{{Node: "n1", Reason: "full"}}}, nil
	}
	return p
}

// TestAttemptsOfTheServerThatSchedules: whichever server is asked, the attempts come from the one whose scheduler runs, with nodes if it is
// about one Pod, and it is known that there are none of other Pods.
func TestAttemptsOfTheServerThatSchedules(t *testing.T) {
	n := newNetwork()
	idle := scheduling(n.server(t, 1))
	scheduling(n.server(t, 2), "a", "b")
	scheduling(n.server(t, 3))
	got, isKnown, missing := idle.Attempts(t.Context(), []types.UID{"a"})
	if a := got["a"]; !isKnown || missing != nil || len(got) != 1 || a.Message != "about a" || len(a.Nodes) != 1 ||
		a.Nodes[0].Reason != "full" {
		t.Errorf("%+v, %v, %s", got, isKnown, texts(missing))
	}
	many := []types.UID{"a", "b"}
	for i := range 2 * maxAttempts {
		many = append(many, types.UID(fmt.Sprint("other ", i)))
	}
	got, isKnown, missing = idle.Attempts(t.Context(), many)
	if !isKnown || missing != nil || len(got) != 2 || got["b"].Message != "about b" || got["b"].Nodes != nil {
		t.Errorf("%+v, %v, %s", got, isKnown, texts(missing))
	}
	if got, isKnown, missing := (*Peers)(nil).Attempts(t.Context(), many); len(got) != 0 || isKnown || missing != nil {
		t.Errorf("without peers: %v, %v, %v", got, isKnown, missing)
	}
}

// TestAttemptsOfNobody: when the server whose scheduler runs does not answer, or answers what cannot be, nothing is known, and the server
// is named.
func TestAttemptsOfNobody(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"", "connection refused"},
		{"nonsense", "cannot be read"},
		{`{"server": "other"}`, "another server"},
		{`{"server": "NAME", "records": [], "schedules": true, "attempts": [{"pod": "x", "attempt": {}}]}`, "cannot be"},
		{`{"server": "NAME", "records": [], "attempts": [{"pod": "a"}, {"pod": "a"}]}`, "too many"},
		{`{"server": "NAME", "records": [], "attempts": [{"pod": "a", "attempt": {"time": "2999-01-01T00:00:00Z"}}]}`, "cannot be"},
	} {
		n := newNetwork()
		p := scheduling(n.server(t, 1))
		other := n.server(t, 2)
		var h http.Handler
		if c.text != "" {
			h = lines(strings.ReplaceAll(c.text, "NAME", other.name))
		}
		n.handlers[other.Address.String()] = h
		if h == nil {
			delete(n.handlers, other.Address.String())
		}
		got, isKnown, missing := p.Attempts(t.Context(), []types.UID{"a"})
		if len(got) != 0 || isKnown || len(missing) != 1 || !strings.Contains(missing[0].Text, c.want) ||
			!strings.Contains(missing[0].Text, other.name) {
			t.Errorf("%s: %v, %v, %s", c.text, got, isKnown, texts(missing))
		}
	}
}

// TestSilentServersOfAttempts checks that servers which do not answer are named once each, in the order of their names, however many
// questions there are, and that they are not asked again.
func TestSilentServersOfAttempts(t *testing.T) {
	n := newNetwork()
	p := scheduling(n.server(t, 1))
	var want []string
	for port := range uint16(8) {
		other := n.server(t, port+2)
		n.handlers[other.Address.String()] = lines("nonsense")
		want = append(want, other.name)
	}
	slices.Sort(want)
	pods := make([]types.UID, 5*maxAttempts)
	for i := range pods {
		pods[i] = types.UID(fmt.Sprint(i))
	}
	for range 10 {
		n.asked.Store(0)
		_, isKnown, missing := p.Attempts(t.Context(), pods)
		var got []string
		for _, m := range missing {
			name, _, _ := strings.Cut(m.Text, " ")
			got = append(got, name)
		}
		if !slices.Equal(got, want) || isKnown || n.asked.Load() != 8 {
			t.Fatalf("%d questions, and missing are %v, want %v", n.asked.Load(), got, want)
		}
	}
}
