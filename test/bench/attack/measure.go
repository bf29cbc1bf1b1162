package attack

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"time"

	"proa.dev/test/upstream"
)

// Measurement is what one attack did to one server.
type Measurement struct {
	Attack string
	Server string
	Sent   int64
	// Closed is how many of the attacker's connections the server closed.
	Closed int
	CPU    time.Duration // of the server, from the beginning of the attack until afterwards
	// Peak and After are anonymous memory in bytes above that before the attack: the most during it, and once it was over.
	Peak, After int64
	Probes      Probes
	Got         string // what the attacker got
	// Reached tells whether the attack is known to have arrived.
	Reached bool
}

// afterwards is how long after an attack its processor time still counts, and when memory is read again.
const afterwards = 500 * time.Millisecond

// sampling is the pause between two looks at the memory.
const sampling = 20 * time.Millisecond

// Process is the server's process.
type Process struct {
	PID int
	CPU func() (time.Duration, error)
}

// measure runs one attack against a server that was just started.
func measure(ctx context.Context, row Attack, s *upstream.System, process Process) (Measurement, error) {
	m := Measurement{Attack: row.Name}
	target, err := prepare(ctx, s, row.NeedsList)
	if err != nil {
		return m, err
	}
	probes := newProber(target)
	defer probes.close()
	if err := probes.warmUp(); err != nil {
		return m, err
	}
	idle, err := anonymousMemory(process.PID)
	if err != nil {
		return m, err
	}
	before, err := process.CPU()
	if err != nil {
		return m, err
	}
	watching, stop := context.WithCancel(ctx)
	defer stop()
	peak := make(chan int64, 1)
	go func() { peak <- largestMemory(watching, process.PID) }()
	answered := make(chan Probes, 1)
	during, cancel := context.WithTimeout(ctx, row.window())
	defer cancel()
	go func() { answered <- probes.run(during) }()
	t := newTally()
	conduct(during, row, target, t)
	m.Probes = <-answered
	if err := pause(ctx, afterwards); err != nil {
		return m, err
	}
	stop()
	m.Peak = max(<-peak-idle, 0)
	after, errMemory := anonymousMemory(process.PID)
	used, errCPU := process.CPU()
	if err := errors.Join(errMemory, errCPU); err != nil {
		return m, fmt.Errorf("the server did not survive: %w\n%s", err, s.Log())
	}
	m.CPU, m.After, m.Sent = used-before, max(after-idle, 0), t.sent.Load()
	m.Got, m.Closed = t.String(), t.closed
	row.Silent = row.Silent || m.CPU > harmlessCPU // a server that is too busy to answer has got the attack
	m.Reached = t.reached(row) && (t.closed > 0 || m.Sent >= int64(row.Planned)/10)
	return m, nil
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

// largestMemory looks at the memory of a process again and again until ctx is over, and returns the most it saw.
func largestMemory(ctx context.Context, pid int) int64 {
	var largest int64
	_ = every(ctx, sampling, func(int) error {
		if n, err := anonymousMemory(pid); err == nil {
			largest = max(largest, n)
		}
		return nil
	})
	return largest
}

// anonymousMemory is what a process has allocated and the kernel holds in memory, in bytes.
func anonymousMemory(pid int) (int64, error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, fmt.Errorf("read memory: %w", err)
	}
	for line := range bytes.Lines(data) {
		if rest, ok := bytes.CutPrefix(line, []byte("RssAnon:")); ok {
			fields := bytes.Fields(rest)
			n, err := strconv.ParseInt(string(fields[0]), 10, 64)
			return n << 10, err
		}
	}
	return 0, fmt.Errorf("read memory of %d: the kernel does not tell RssAnon", pid)
}
