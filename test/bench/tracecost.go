package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"proa.dev/internal/wait"
	"proa.dev/test/bench/benchrun"
	"proa.dev/test/upstream"
)

// traceSuite is the name of the suite that measures what recording costs.
const traceSuite = "trace"

// recorded is one of the two servers of the suite, and what was measured of it in each round.
type recorded struct {
	name      string
	args      []string
	server    *upstream.System
	client    *benchrun.Client
	namespace string

	rate, cpu []float64 // creates a second, microseconds of processor time a create
	anon      []float64 // MiB of anonymous memory after the rounds of one start
}

// traceCost is the result of the suite: what a create costs without and with the recorder. Ratios are of the second to the
// first.
type traceCost struct {
	Starts, Rounds  int // how often the servers were started, and the rounds after each start
	Rate, CPU, Anon [2]float64
	RateRatio       float64    // the median over all rounds
	CPURatio        float64    // of all rounds together, so that work which is done from time to time counts
	Spread          [2]float64 // the lowest and the highest ratio of processor times of one start
}

// The parts of the suite for each turn: two processes of the same program differ by some percent, so the servers are started often.
const (
	traceCreates       = 3000
	traceStartsPerTurn = 4
	traceRounds        = 5
)

// measureTrace runs two servers beside each other, one with the recorder and one without, and sends the same creates to one
// and to the other in turn. What else the machine does meanwhile meets both alike.
func (f flags) measureTrace(ctx context.Context, s suite) (section, error) {
	sides := [2]*recorded{{name: "off", args: []string{"--trace-records", "0"}}, {name: "on"}}
	out := &traceCost{Starts: traceStartsPerTurn * max(1, f.turns), Rounds: traceRounds}
	for start := range out.Starts {
		benchrun.Progress("recorder off and on: start %d of %d", start+1, out.Starts)
		if err := f.traceRounds(ctx, sides, start); err != nil {
			return section{}, err
		}
		first := start * traceRounds
		ratio := mean(sides[1].cpu[first:]) / mean(sides[0].cpu[first:])
		if start == 0 {
			out.Spread = [2]float64{ratio, ratio}
		}
		out.Spread = [2]float64{min(out.Spread[0], ratio), max(out.Spread[1], ratio)}
	}
	for i, side := range sides {
		out.Rate[i], out.CPU[i], out.Anon[i] = quantile(side.rate, 0.5), mean(side.cpu), mean(side.anon)
	}
	out.RateRatio, out.CPURatio = quantile(ratios(sides[1].rate, sides[0].rate), 0.5), out.CPU[1]/out.CPU[0]
	return section{suite: s, trace: out}, nil
}

// traceRounds starts both servers, measures rounds, and stops them.
func (f flags) traceRounds(ctx context.Context, sides [2]*recorded, start int) error {
	order := []*recorded{sides[start%2], sides[1-start%2]}
	for _, side := range order {
		if err := side.start(ctx, f.Bin); err != nil {
			return err
		}
		defer side.server.Stop()
	}
	for round := range traceRounds + 1 {
		for i := range order {
			side := order[(i+round)%2]
			if err := side.round(ctx, round, f.Parallel); err != nil {
				return fmt.Errorf("recorder %s: %w", side.name, err)
			}
		}
	}
	if err := wait.Sleep(ctx, f.Settle); err != nil {
		return err
	}
	for _, side := range sides {
		used, err := benchrun.ReadUsage(side.server.Pids())
		if err != nil {
			return err
		}
		side.anon = append(side.anon, float64(used.Anon)/(1<<20))
	}
	return nil
}

// start starts a server and makes a client and a namespace for it.
func (r *recorded) start(ctx context.Context, bin string) (err error) {
	if r.server, err = upstream.StartProa(ctx, bin, r.args...); err != nil {
		return err
	}
	if err := benchrun.WaitAccount(ctx, r.server); err != nil {
		return err
	}
	if r.client, err = benchrun.NewClient(r.server.Kubeconfig); err != nil {
		return err
	}
	r.namespace, err = r.client.Namespace(ctx, "trace")
	return err
}

// round sends creates and measures them. The first round fills connections, caches and the recorder, and does not count.
func (r *recorded) round(ctx context.Context, round, parallel int) error {
	before, err := benchrun.ProcessorTime(r.server.Pids())
	if err != nil {
		return err
	}
	_, rate, err := benchrun.Workers(parallel, time.Hour, traceCreates, func(i int) error {
		return r.client.Create(ctx, r.namespace, fmt.Sprintf("cm-%07d", round*traceCreates+i))
	})
	if err != nil {
		return err
	}
	after, err := benchrun.ProcessorTime(r.server.Pids())
	if err != nil || round == 0 {
		return err
	}
	r.rate, r.cpu = append(r.rate, rate), append(r.cpu, float64((after-before).Microseconds())/traceCreates)
	return nil
}

// ratios divides pairwise.
func ratios(a, b []float64) []float64 {
	out := make([]float64, len(a))
	for i := range a {
		out[i] = a[i] / b[i]
	}
	return out
}

// mean returns the sum of the values divided by their number.
func mean(values []float64) float64 {
	sum := 0.0
	for _, v := range values {
		sum += v
	}
	return sum / float64(max(1, len(values)))
}

// quantile returns the value below which a share of the values are.
func quantile(values []float64, share float64) float64 {
	if len(values) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(values))
	return sorted[int(share*float64(len(sorted)-1)+0.5)]
}

// table returns the costs as a Markdown table.
func (c *traceCost) table() string {
	line := func(what, unit string, of [2]float64, ratio float64, digits int) []string {
		return []string{what, unit, fmt.Sprintf("%.*f", digits, of[0]), fmt.Sprintf("%.*f", digits, of[1]), fmt.Sprintf("%.3f", ratio)}
	}
	return benchrun.Markdown([][]string{
		{"what", "unit", "recorder off", "recorder on", "ratio"},
		line("create", "/s", c.Rate, c.RateRatio, 0),
		line("processor time a create", "µs", c.CPU, c.CPURatio, 1),
		line("memory (anonymous)", "MiB", c.Anon, c.Anon[1]/c.Anon[0], 0),
	})
}

// notes say how the suite measures.
func (c *traceCost) notes() string {
	return fmt.Sprintf(`- Two servers run beside each other: one with `+"`--trace-records 0`"+`, the other as it is by default, with 8192 records and bodies. In each of %d rounds both
  are sent the same 3,000 creates of ConfigMaps with 1 KiB of data, one server after the other, in alternating order. After that both are started anew, %d times in all, because two processes
  of the same program differ by some percent: the ratio of processor time was between %.3f and %.3f in a single start. The ratio of creates is the median of those of each round; processor time is that of
  all rounds together; memory is the mean.
`, c.Rounds, c.Starts, c.Spread[0], c.Spread[1])
}
