package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"proa.dev/test/bench/attack"
	"proa.dev/test/bench/benchrun"
)

// attacksSuite is the name of the suite that compares proa's two HTTP/2 servers under attack.
const attacksSuite = "attacks"

// attack runs the suite of attacks. It takes no turns with upstream: both servers are those of proa.
func (f flags) attack(ctx context.Context, s suite) (section, error) {
	report, err := attack.Run(ctx, attack.Options{
		Binary: f.Bin, Only: f.Settings.Only, Turns: f.turns, Progress: benchrun.Progress,
		CPU: func(pid int) (time.Duration, error) { return benchrun.ProcessorTime([]int{pid}) },
	})
	return section{suite: s, attacks: report}, err
}

// attackTables are the two tables of a report: costs, and answers.
func attackTables(r *attack.Report) string {
	costs, answers := [][]string{attack.Head()}, [][]string{{"request", "own", "std", "own beside std"}}
	for _, row := range r.Rows {
		costs = append(costs, row.Cells())
	}
	for _, a := range r.Answers {
		answers = append(answers, a.Cells())
	}
	return benchrun.Markdown(costs) + "\n" + benchrun.Markdown(answers)
}

// worseRows names the rows in which proa's own HTTP/2 server is not as safe as that of net/http.
func worseRows(r *attack.Report) []string {
	var out []string
	for _, row := range r.Rows {
		if row.Invalid() != "" || len(row.Worse()) > 0 {
			out = append(out, fmt.Sprintf("%s: %s", row.Name, row.Verdict()))
		}
	}
	for _, a := range r.Answers {
		if !a.Same() {
			out = append(out, strings.Join(a.Cells(), ": "))
		}
	}
	return out
}

// attackNotes say how the suite of attacks measures.
const attackNotes = `- The table compares the two HTTP/2 servers of proa: own is ` + "`server/h2`" + ` (` + "`--http2=own`" + `), std is that of Go's net/http (` + "`--http2=std`" + `). Cells
  have own first, then std. Every attack meets a ` + "`proa server`" + ` that was just started, without nodes, over TLS on loopback. HTTP/1.1 is served
  by net/http in both; those rows, and those about large lists and YAML, show what the rest of the server costs.
- An attack sends a fixed amount of work in 2 or 3 seconds, and keeps its connections open to the end. What the server closes is opened again up to ten
  times. Sent is what was written, so that a server that ends an attack early is sent less. A row counts only if the attack has arrived: the
  server answered, reset or closed something, or answered a PING after the last frame, and the bytes were written.
- CPU is that of the server process, from the start of the attack to half a second after its end. Memory is anonymous memory above that before the
  attack: the most that was seen (every 20 ms), and that half a second after the attack, when its connections are closed; Go gives memory back to
  the system later than that.
- Probes are the requests of others meanwhile: 12 a second each of a service account and of an ordinary user, over connections that they keep,
  and 4 a second over new connections. They belong to two priority levels, and strangers to the level of the user, so that seats which an
  attack holds are missed by somebody. A probe counts as answered if it got its object within a second.
- "As safe" means that own has at most 1.25 times the CPU (in all, or for each unit sent), peak memory, memory afterwards and unanswered probes of std, or
  less than 0.3 s, 32 MiB, 32 MiB and 5 % of the probes. A row in which own looks worse is run three times, and the numbers in the
  middle count. ` + "`make bench-attacks`" + ` fails when a row is worse.
- The second table is about requests that should be refused. "Own is stricter" is an answer that RFC 9113 asks for, or a handshake refused earlier.
- ClientHello rows end before the handshake deadline of 10 s, and those of slow requests before their deadline; the tests of ` + "`server/h2`" + ` hold those deadlines.
`
