package chaos

import (
	"strings"
	"testing"
	"time"
)

func TestPut(t *testing.T) {
	const document = "# Title\n\nWords.\n\n## One\n\nold\n\n## Two\n\ntwo\n"
	for _, x := range []struct{ title, want string }{
		{"One", "# Title\n\nWords.\n\n## One\n\nnew\n\n## Two\n\ntwo\n"},
		{"Two", "# Title\n\nWords.\n\n## One\n\nold\n\n## Two\n\nnew\n"},
		{"Three", document + "\n## Three\n\nnew\n"},
	} {
		got := Put(document, x.title, "new\n")
		if got != x.want {
			t.Errorf("%s:\n%s\nwant\n%s", x.title, got, x.want)
		}
		if again := Put(got, x.title, "new"); again != got {
			t.Errorf("%s again:\n%s", x.title, again)
		}
	}
	if got := Put("## One\n\nold\n", "One", "new"); got != "## One\n\nnew\n" {
		t.Errorf("at the begin: %q", got)
	}
}

// TestSections checks that the sections of a document have the numbers of the run.
func TestSections(t *testing.T) {
	run := Run{"cmd", "0.10", time.Date(2026, 11, 15, 0, 0, 0, 0, time.UTC)}
	out := &Outcome{Totals: []Total{{"node", Lane{URL: "u", Sent: 30, Failed: 1}}, {"outside", Lane{URL: "u", Sent: 12}}},
		Failures: make([]Failure, 1), Took: []time.Duration{9 * time.Second, 7 * time.Second}}
	_, text := RolloutSection(run, Rollouts{Rate: 500}, out)
	for _, want := range []string{"`cmd` on 2026-11-15", "others just before: 0.10", "rolled out 2 times", "500 requests a second",
		"Of 42 requests 1 failed.", "A rollout took 7.0 to 9.0 s.", "| all | | | 42 | 1 |"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in\n%s", want, text)
		}
	}
	_, text = EventSection(run, Events{Rate: 60, Seed: 3}, []Event{{Kind: AgentKill, Node: "a-2"}}, out)
	for _, want := range []string{"1 events happen", "(seed 3)", "| 1 | agent killed | a-2 |", "| all | | | 42 | 1 |"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in\n%s", want, text)
		}
	}
}

// TestEventDeck checks that a run has events of the requested kinds in a random order that depends on the seed, and only a few of the
// kind that takes a minute.
func TestEventDeck(t *testing.T) {
	count := map[string]int{}
	deck := Events{Count: 24, Seed: 1}.order()
	for _, kind := range deck {
		count[kind]++
	}
	if len(deck) != 24 || count[LongCut] != 3 || count[AgentKill] < 6 || count[NodeKill] < 6 || count[ShortCut] < 6 {
		t.Errorf("%v", count)
	}
	if other := (Events{Count: 24, Seed: 2}).order(); strings.Join(other, " ") == strings.Join(deck, " ") {
		t.Error("another seed, the same order")
	}
	if got := strings.Join(Events{Count: 5, Kinds: []string{"a", "b"}, InTurn: true}.order(), " "); got != "a b a b a" {
		t.Errorf("in turn: %s", got)
	}
}
