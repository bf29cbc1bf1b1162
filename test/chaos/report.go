package chaos

import (
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"
)

// Run describes a run in documents: how to repeat it, and how busy the machine was with other things before.
type Run struct {
	Command string
	Load    string
	On      time.Time
}

// Begin returns a Run with the command, the current load of the machine and the time.
func Begin(command string) Run {
	load, _ := os.ReadFile("/proc/loadavg")
	first, _, _ := strings.Cut(string(load), " ")
	return Run{command, first, time.Now().UTC()}
}

func (r Run) head() string {
	return fmt.Sprintf("Written by `%s` on %s. Machine: %d cores, %s/%s; load by others just before: %s. All nodes are on one machine (`proa up --nodes N`), "+
		"each beyond the first in a network namespace of its own.\n\n", r.Command, r.On.Format("2006-01-02"), runtime.NumCPU(),
		runtime.GOOS, runtime.GOARCH, r.Load)
}

// RolloutSection returns the title and the text of the section about rollouts.
func RolloutSection(run Run, r Rollouts, o *Outcome) (title, text string) {
	took := slices.Sorted(slices.Values(o.Took))
	text = run.head() + fmt.Sprintf(`A Deployment of four Pods (readiness probe, preStop sleep of 3 s, requests that have begun may end) is rolled out %d times, while clients on the first node,
in a Pod on each node and in a network outside send %g requests a second together: over connections that are kept and over a new one for each request. A
request fails if it is refused, reset, not answered with 200, or not answered within 15 s. Of %d requests %d failed.`, len(o.Took), r.Rate, o.sent(), len(o.Failures))
	if len(took) > 0 {
		text += fmt.Sprintf(" A rollout took %.1f to %.1f s.", took[0].Seconds(), took[len(took)-1].Seconds())
	}
	return "Rollouts under traffic", text + "\n\n" + o.Text()
}

// EventSection returns the title and the text of the section about events.
func EventSection(run Run, e Events, events []Event, o *Outcome) (title, text string) {
	text = run.head() + fmt.Sprintf(`%d events happen to the further nodes, chosen by dice (seed %d), each when all is well again and every node has Pods of the Deployment. Clients on the
first node, in a Pod on it and outside send %g requests a second together, which fail after 2 s. Traffic recovered from all of them by itself.

An agent that is killed (SIGKILL) is started again, and its Pods and rules never stop. A node that is killed loses its agent, its container runtime and every
container at once; all of it comes back in the same place. A link that is cut lets no packet through, for 5 s or until the cluster has given the node up (50 s without
a sign, as upstream) and traffic does without it; then it is mended. Until then every connection that is made anew has a chance to be sent to a Pod that is not
there, as with kube-proxy.

`, len(events), e.Seed, e.Rate)
	return "Failures under traffic", text + EventTable(events) + "\n" + Table(o.Totals, o.Names)
}

func (o *Outcome) sent() (n int) {
	for _, t := range o.Totals {
		n += t.Sent
	}
	return n
}

// Put replaces the section of a Markdown document that has this title, or adds it at the end.
func Put(document, title, text string) string {
	section := "## " + title + "\n\n" + strings.TrimSpace(text) + "\n"
	parts := strings.Split("\n"+document, "\n## ")
	for i, part := range parts[1:] {
		if name, _, _ := strings.Cut(part, "\n"); name != title {
			continue
		}
		after := ""
		if i+2 < len(parts) {
			after = "\n## " + strings.Join(parts[i+2:], "\n## ")
		}
		return strings.TrimPrefix(strings.Join(parts[:i+1], "\n## ")+"\n"+section+after, "\n")
	}
	return strings.TrimRight(document, "\n") + "\n\n" + section
}
