package chaos

import (
	"os"
	"strings"
	"testing"
	"time"
)

// TestFollow parses the output of the load tool: failures as they happen, and totals at the end.
func TestFollow(t *testing.T) {
	c := &Client{From: "node"}
	c.follow(strings.NewReader(`{"at":"2026-11-15T13:00:00Z","took":1500,"url":"http://a/","new":true,"error":"connection refused"}
not a line of ours
{"url":"http://a/","new":true,"sent":3,"failed":1,"p50":1.5}
{"url":"http://b/","new":false,"sent":2,"failed":0}
`))
	failures := Clients{c, {From: "empty"}}.Failures()
	if len(failures) != 1 || failures[0].From != "node" || failures[0].End() != time.Date(2026, 11, 15, 13, 0, 1, 5e8, time.UTC) {
		t.Errorf("failures %+v", failures)
	}
	if len(c.lanes) != 2 {
		t.Fatalf("lanes %+v", c.lanes)
	}
	got := Table([]Total{{"node", c.lanes[0]}, {"node", c.lanes[1]}}, map[string]string{"http://a/": "ClusterIP"})
	want := `| from | to | connections | requests | failed | p50 ms | p99 ms | longest ms |
|---|---|---|---|---|---|---|---|
| node | ClusterIP | new | 3 | 1 | 1.5 | 0.0 | 0 |
| node | http://b/ | kept | 2 | 0 | 0.0 | 0.0 | 0 |
| all | | | 5 | 1 | | | |
`
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestEventTable(t *testing.T) {
	got := EventTable([]Event{
		{Kind: AgentKill, Node: "a-2"},
		{Kind: LongCut, Node: "a-3", Failed: 7, WithoutNode: 51 * time.Second, Disturbed: 51200 * time.Millisecond,
			Recovered: 56 * time.Second},
	})
	want := `| | event | node | requests that failed | the last one after | all well after |
|---|---|---|---|---|---|
| 1 | agent killed | a-2 | 0 | none | 0.0 s |
| 2 | link cut until the node is given up (after 51.0 s) | a-3 | 7 | 51.2 s | 56.0 s |
`
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// TestProcessesBelow checks that the processes of a node do not include those of another node whose name has the same prefix.
func TestProcessesBelow(t *testing.T) {
	for line, want := range map[string]bool{
		"proa agent --data-dir=/d/nodes/a-2 --node=a-2":    true,
		"proa agent --data-dir /d/nodes/a-2":               true,
		"containerd --config /d/nodes/a-2/containerd.toml": true,
		"proa agent --data-dir=/d/nodes/a-20":              false,
		"proa server --data-dir=/d":                        false,
	} {
		if got := (process{args: strings.Fields(line)}).isBelow("/d/nodes/a-2"); got != want {
			t.Errorf("%s: %t", line, got)
		}
	}
	self := os.Getpid()
	for _, p := range processes() {
		if p.pid == self && p.parent == os.Getppid() && len(p.args) > 0 {
			return
		}
	}
	t.Error("this process is not among those of the machine")
}
