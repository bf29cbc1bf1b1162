package attack

import (
	"strings"
	"testing"
	"time"
)

// measured is a measurement that does no harm, changed by a test.
func measured(server string, change func(*Measurement)) Measurement {
	m := Measurement{Server: server, Sent: 100, CPU: 100 * time.Millisecond, Peak: 1 << 20, After: 1 << 20, Reached: true}
	m.Probes = Probes{Sent: 100, Answered: 100}
	if change != nil {
		change(&m)
	}
	return m
}

// TestVerdict holds what makes the own server worse than that of net/http.
func TestVerdict(t *testing.T) {
	t.Parallel()
	cpu := func(d time.Duration) func(*Measurement) { return func(m *Measurement) { m.CPU = d } }
	for _, c := range []struct {
		name     string
		own, std func(*Measurement)
		want     string
	}{
		{"both harmless", nil, nil, "as safe"},
		{"twice the CPU, and still harmless", cpu(300 * time.Millisecond), cpu(50 * time.Millisecond), "as safe"},
		{"more CPU within the tolerance", cpu(1200 * time.Millisecond), cpu(time.Second), "as safe"},
		{"more CPU", cpu(1300 * time.Millisecond), cpu(time.Second), "worse: CPU"},
		{"more CPU for more that was sent", func(m *Measurement) { m.CPU, m.Sent = 2*time.Second, 200 }, cpu(time.Second), "as safe"},
		{"less CPU for less that was sent", func(m *Measurement) { m.CPU, m.Sent = time.Second, 1 }, cpu(time.Second), "as safe"},
		{"more memory, harmless", func(m *Measurement) { m.Peak, m.After = 32<<20, 32<<20 }, nil, "as safe"},
		{"more memory", func(m *Measurement) { m.Peak, m.After = 33<<20, 33<<20 }, nil, "worse: peak memory, memory after"},
		{"both much memory", func(m *Measurement) { m.Peak = 1100 << 20 }, func(m *Measurement) { m.Peak = 1000 << 20 }, "as safe"},
		{"probes starve", func(m *Measurement) { m.Probes.Answered = 90 }, nil, "worse: probes"},
		{"probes starve on both", func(m *Measurement) { m.Probes.Answered = 90 }, func(m *Measurement) { m.Probes.Answered = 80 },
			"as safe"},
		{"not reached", nil, func(m *Measurement) { m.Reached = false }, "did not reach std"},
	} {
		row := Row{Name: c.name, Own: measured(own, c.own), Std: measured(std, c.std)}
		if got := row.Verdict(); got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
		if got := row.Cells(); len(got) != len(Head()) || got[len(got)-1] != c.want {
			t.Errorf("%s: the cells are %q", c.name, got)
		}
	}
}

// TestMiddle takes the number in the middle of three turns, each by itself.
func TestMiddle(t *testing.T) {
	t.Parallel()
	turn := func(cpu time.Duration, peak int64, answered int) Measurement {
		return measured(own, func(m *Measurement) { m.CPU, m.Peak, m.Probes.Answered = cpu, peak, answered })
	}
	m := middle([]Measurement{turn(3, 7, 90), turn(1, 9, 100), turn(2, 8, 95)})
	if m.CPU != 2 || m.Peak != 8 || m.Probes.Answered != 95 {
		t.Errorf("got %+v", m)
	}
}

func TestAnswerVerdict(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		own, std string
		want     string
	}{
		{"status 200", "status 200", "same"},
		{"reset PROTOCOL_ERROR", "status 400", "own is stricter"},
		{"status 200", "status 400", "differs"},
	} {
		a := Answer{Name: "x", Own: c.own, Std: c.std, Strict: []string{"reset PROTOCOL_ERROR"}}
		if cells := a.Cells(); cells[3] != c.want || a.Same() != (c.want != "differs") {
			t.Errorf("%q beside %q: %s, want %s", c.own, c.std, strings.Join(cells, ", "), c.want)
		}
	}
}
