package trace

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"proa.dev/hop"
	"proa.dev/internal/textcase"
)

// epoch is the moment from which the texts count.
var epoch = time.Date(2026, 11, 17, 12, 0, 0, 0, time.UTC)

// TestBuild reads records and shows their traces. Lines before "---" are
//
//	now DURATION
//	UID@REVISION VERB RESOURCE[/SUB] NAMESPACE/NAME USER START [cause=UID@REV] [HOP=TOOK[/WAIT]] [step=HOP:NAME:AFTER:TOOK[/WAIT]] …
//	trace RESOURCE NAMESPACE/NAME
//	hide RESOURCE                (of the traces that follow)
//	recent
//
// where underscores in words stand for spaces.
func TestBuild(t *testing.T) {
	textcase.Play(t, "testdata/build/*.txt", "== ", func(t *testing.T, body string) string {
		text, _, _ := strings.Cut(body, "---\n")
		w := &world{t: t, now: epoch, hidden: map[string]bool{}}
		var out strings.Builder
		for line := range strings.Lines(text) {
			w.do(&out, strings.TrimSpace(line))
		}
		return strings.TrimRight(text, "\n") + "\n---\n" + out.String()
	})
}

type world struct {
	t       *testing.T
	now     time.Time
	records []hop.Record
	hidden  map[string]bool
}

func (w *world) reader() Reader {
	return Reader{MayGet: func(r Ref) bool { return !w.hidden[r.Resource] }, MayGetNode: func(string) bool { return !w.hidden["nodes"] },
		MayGetAll: func() bool { return len(w.hidden) == 0 }}
}

func (w *world) do(out *strings.Builder, line string) {
	words := strings.Fields(line)
	switch {
	case len(words) == 0 || words[0] == "#":
	case words[0] == "now":
		w.now = epoch.Add(duration(w.t, words[1]))
	case words[0] == "hide":
		w.hidden[words[1]] = true
	case words[0] == "trace":
		ref, ok := ParseName(words[1] + ":x")
		ref.Namespace, ref.Name, _ = strings.Cut(words[2], "/")
		if !ok {
			w.t.Fatalf("%q is no resource", words[1])
		}
		got := Build(w.records, ref, w.now)
		if got == nil {
			fmt.Fprintln(out, "no trace")
			return
		}
		if len(w.hidden) > 0 {
			got.Hide(w.reader())
		}
		if got.State != Running {
			var sum time.Duration
			for _, share := range got.Critical {
				sum += share.Took
			}
			if sum != got.Took {
				w.t.Errorf("the critical path of %s is %s long and the whole %s", words[2], sum, got.Took)
			}
		}
		show(out, got)
	case words[0] == "recent":
		for _, t := range NewIndex(w.records).Recent("", 10, w.now, w.reader()) {
			fmt.Fprintf(out, "%s/%s %q by %q %s: %s\n", t.Namespace, t.Name, t.Command, t.User, t.State, t.Summary)
		}
	default:
		w.records = append(w.records, parseRecord(w.t, words))
	}
}

func duration(t *testing.T, s string) time.Duration {
	d, err := time.ParseDuration(s)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func parseVersion(t *testing.T, s string) (types.UID, int64) {
	uid, rev, _ := strings.Cut(s, "@")
	n, err := strconv.ParseInt(rev, 10, 64)
	if err != nil {
		t.Fatalf("%q is no UID@REVISION", s)
	}
	return types.UID(strings.TrimPrefix(uid, "-")), n
}

func hopNamed(t *testing.T, name string) hop.Hop {
	for h := hop.Client; h <= hop.Network; h++ {
		if h.String() == name {
			return h
		}
	}
	t.Fatalf("%q is no hop", name)
	return 0
}

func parseRecord(t *testing.T, words []string) hop.Record {
	if len(words) < 6 {
		t.Fatalf("too few words: %v", words)
	}
	r := hop.Record{Verb: words[1], User: words[4], Start: epoch.Add(duration(t, words[5]))}
	r.UID, r.Rev = parseVersion(t, words[0])
	resource, sub, _ := strings.Cut(words[2], "/")
	ref, _ := ParseName(resource + ":x")
	r.Group, r.Resource, r.Subresource = ref.Group, ref.Resource, sub
	r.Namespace, r.Name, _ = strings.Cut(words[3], "/")
	for _, word := range words[6:] {
		key, value, _ := strings.Cut(word, "=")
		text := strings.ReplaceAll(value, "_", " ")
		switch key {
		case "cause":
			r.CauseUID, r.CauseRev = parseVersion(t, value)
		case "code":
			r.Code, _ = strconv.Atoi(value)
		case "error":
			r.Error = text
		case "refused":
			r.Refused = hopNamed(t, value)
		case "open":
			r.Open = true
		case "ready":
			r.Ready = true
		case "removed":
			r.Removed = true
		case "detail":
			r.Steps[len(r.Steps)-1].Detail = text
		case "process":
			r.Process = value
		case "command":
			r.Origin = &hop.Origin{Command: text, Session: "session"}
		case "step":
			parts := strings.Split(text, ":")
			took, wait, waits := strings.Cut(parts[3], "/")
			s := hop.Step{Hop: hopNamed(t, parts[0]), Name: parts[1], After: duration(t, parts[2]), Took: duration(t, took)}
			if waits {
				s.Wait = duration(t, wait)
			}
			s.Failed = len(parts) > 4
			r.Steps = append(r.Steps, s)
		default:
			took, wait, waits := strings.Cut(value, "/")
			h := hopNamed(t, key)
			r.Took[h] = duration(t, took)
			if waits {
				r.Wait[h] = duration(t, wait)
			}
		}
	}
	return r
}

func show(out *strings.Builder, t *Trace) {
	fmt.Fprintf(out, "%s/%s: %s. %s\n", t.Namespace, t.Name, t.State, t.Summary)
	if t.Command != "" || t.User != "" {
		fmt.Fprintf(out, "%q by %q\n", t.Command, t.User)
	}
	if t.Stuck != "" {
		fmt.Fprintf(out, "stuck: %s\n", t.Stuck)
	}
	var marks []string
	for _, m := range t.Milestones {
		marks = append(marks, m.Name+" "+m.At.String())
	}
	fmt.Fprintf(out, "%s\n", strings.Join(marks, ", "))
	if t.Hidden+t.Dropped+t.Later > 0 {
		fmt.Fprintf(out, "hidden %d, dropped %d, later %d\n", t.Hidden, t.Dropped, t.Later)
	}
	depth := map[string]int{}
	names := map[string]string{}
	for _, s := range t.Spans {
		if s.Parent != "" {
			depth[s.ID] = depth[s.Parent] + 1
		}
		mark := " "
		if s.Critical {
			mark = "*"
		}
		took := s.Took.String()
		if s.Wait > 0 {
			took += " (wait " + s.Wait.String() + ")"
		}
		if s.Open {
			took += " open"
		}
		line := fmt.Sprintf("%s %s%s +%s %s", mark, strings.Repeat("  ", depth[s.ID]), s.Name, s.Start.Sub(t.Start), took)
		names[s.ID] = s.Name
		if s.Parent == "" {
			line += fmt.Sprintf(" [%s %s %s]", s.HopName, s.Object.Name, s.Actor)
			names[s.ID] += " " + s.Object.Name
		}
		for _, l := range s.Links {
			line += " <- " + names[l]
		}
		if s.Error != "" {
			line += " ! " + s.Error
		}
		if s.Detail != "" {
			line += " # " + s.Detail
		}
		fmt.Fprintln(out, line)
	}
}
