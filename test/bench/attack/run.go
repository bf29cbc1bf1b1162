package attack

import (
	"context"
	"fmt"
	"regexp"
	"time"

	"proa.dev/test/upstream"
)

// Options say what is attacked, and how often.
type Options struct {
	Binary   string         // of proa
	Only     *regexp.Regexp // rows by name; nil for all
	Turns    int            // how often an attack is run at most when the own server looks worse
	CPU      func(pid int) (time.Duration, error)
	Progress func(format string, args ...any)
}

// Report is what all attacks did.
type Report struct {
	Rows    []Row
	Answers []Answer
}

// The names of both HTTP/2 servers, as the flag --http2 of proa has them.
const (
	own = "own"
	std = "std"
)

// Run attacks both servers, each row on servers that were just started. A row in which the own server looks worse is run again, and the
// numbers in the middle count: what others do on the machine disturbs a single run.
func Run(ctx context.Context, o Options) (*Report, error) {
	report := &Report{}
	for i, row := range Attacks() {
		if o.Only != nil && !o.Only.MatchString(row.Name) {
			continue
		}
		r, err := o.compare(ctx, row, i%2 == 1)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", row.Name, err)
		}
		o.Progress("%s: CPU %.2f / %.2f s, peak %s / %s MiB, after %s / %s MiB, starved %d / %d: %s", row.Name, r.Own.CPU.Seconds(), r.Std.CPU.Seconds(),
			mebibytes(r.Own.Peak), mebibytes(r.Std.Peak), mebibytes(r.Own.After), mebibytes(r.Std.After), r.Own.Probes.Starved(),
			r.Std.Probes.Starved(), r.Verdict())
		report.Rows = append(report.Rows, r)
	}
	var err error
	report.Answers, err = o.answers(ctx)
	return report, err
}

// compare runs one attack on both servers.
func (o Options) compare(ctx context.Context, row Attack, swap bool) (Row, error) {
	r := Row{Name: row.Name, Unit: row.Unit}
	order := []string{own, std}
	if swap {
		order = []string{std, own}
	}
	all := map[string][]Measurement{}
	for turn := range max(o.Turns, 1) {
		// Two numbers have no middle, so that the second and the third turn belong together.
		if turn != 2 && turn > 0 && len(r.Worse()) == 0 && r.Invalid() == "" {
			break
		}
		for _, server := range order {
			m, err := o.once(ctx, row, server)
			if err != nil {
				return r, fmt.Errorf("--http2=%s: %w", server, err)
			}
			all[server] = append(all[server], m)
		}
		r.Own, r.Std = middle(all[own]), middle(all[std])
	}
	return r, nil
}

// once runs one attack on one server, started for it.
func (o Options) once(ctx context.Context, row Attack, server string) (Measurement, error) {
	s, err := upstream.StartProa(ctx, o.Binary, "--http2="+server)
	if err != nil {
		return Measurement{}, err
	}
	defer s.Stop()
	pids := s.Pids()
	if len(pids) != 1 {
		return Measurement{}, fmt.Errorf("the server is %d processes, not one", len(pids))
	}
	m, err := measure(ctx, row, s, Process{PID: pids[0], CPU: func() (time.Duration, error) { return o.CPU(pids[0]) }})
	m.Server = server
	return m, err
}
