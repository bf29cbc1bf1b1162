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
}

// traceCost is the result of the suite: what a create costs without and with the recorder. Ratios are of the second to the
// first.
type traceCost struct {
	Rounds          int
	Rate, CPU, Anon [2]float64
	RateRatio       float64 // the median over all rounds
	CPURatio        float64 // of all rounds together, so that work which is done from time to time counts
	// CPUSpread are the quartiles of the ratio of processor times.
	CPUSpread [2]float64
}

// measureTrace runs two servers beside each other, one with the recorder and one without, and sends the same creates to one
// and to the other in turn. What else the machine does meanwhile meets both alike.
func (f flags) measureTrace(ctx context.Context, s suite) (section, error) {
	const creates, roundsPerTurn = 3000, 20
	sides := [2]*recorded{{name: "off", args: []string{"--trace-records", "0"}}, {name: "on"}}
	for _, side := range sides {
		if err := side.start(ctx, f.Bin); err != nil {
			return section{}, err
		}
		defer side.server.Stop()
	}
	out := &traceCost{Rounds: roundsPerTurn * max(1, f.turns)}
	for round := range out.Rounds + 1 {
		benchrun.Progress("recorder off and on: round %d of %d", round, out.Rounds)
		order := []*recorded{sides[round%2], sides[1-round%2]}
		for _, side := range order {
			if err := side.round(ctx, round*creates, creates, f.Parallel); err != nil {
				return section{}, fmt.Errorf("recorder %s: %w", side.name, err)
			}
		}
		if round == 0 { // it fills connections, caches and the recorder
			for _, side := range sides {
				side.rate, side.cpu = nil, nil
			}
		}
	}
	if err := wait.Sleep(ctx, f.Settle); err != nil {
		return section{}, err
	}
	for i, side := range sides {
		out.Rate[i], out.CPU[i] = quantile(side.rate, 0.5), mean(side.cpu)
		used, err := benchrun.ReadUsage(side.server.Pids())
		if err != nil {
			return section{}, err
		}
		out.Anon[i] = float64(used.Anon) / (1 << 20)
	}
	cpu := ratios(sides[1].cpu, sides[0].cpu)
	out.RateRatio, out.CPURatio = quantile(ratios(sides[1].rate, sides[0].rate), 0.5), out.CPU[1]/out.CPU[0]
	out.CPUSpread = [2]float64{quantile(cpu, 0.25), quantile(cpu, 0.75)}
	return section{suite: s, trace: out}, nil
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

// round sends n creates, numbered from first on.
func (r *recorded) round(ctx context.Context, first, n, parallel int) error {
	before, err := benchrun.ProcessorTime(r.server.Pids())
	if err != nil {
		return err
	}
	_, rate, err := benchrun.Workers(parallel, time.Hour, n, func(i int) error {
		return r.client.Create(ctx, r.namespace, fmt.Sprintf("cm-%07d", first+i))
	})
	if err != nil {
		return err
	}
	after, err := benchrun.ProcessorTime(r.server.Pids())
	if err != nil {
		return err
	}
	r.rate, r.cpu = append(r.rate, rate), append(r.cpu, float64((after-before).Microseconds())/float64(n))
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
  are sent the same 3,000 creates of ConfigMaps with 1 KiB of data, one server after the other, in alternating order. The ratio of creates is the median of those of each round.
  Processor time is that of all rounds together, the file of records that is written every 30 seconds included; half of the rounds have ratios between %.3f and %.3f.
`, c.Rounds, c.CPUSpread[0], c.CPUSpread[1])
}
