package trafficbench

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"proa.dev/test/bench/benchrun"
)

// ask measures the DNS of the cluster, over UDP from the client: names of Services, and names that do not exist, which
// the search list of Pods causes many of.
func (a *trafficTrial) ask(ctx context.Context) error {
	if err := a.fill(ctx, 5000); err != nil {
		return err
	}
	zone := "." + a.namespace + ".svc.cluster.local."
	for _, kind := range []struct {
		what string
		code dnsmessage.RCode
		name func(i int) string
	}{
		{"names of Services", dnsmessage.RCodeSuccess, func(i int) string { return filledName(i%a.filled) + zone }},
		{"one name", dnsmessage.RCodeSuccess, func(int) string { return filledName(0) + zone }},
		{"names that are not there", dnsmessage.RCodeNameError,
			func(i int) string { return fmt.Sprintf("example-%d.com", i%a.filled) + zone }},
	} {
		if err := a.query(ctx, kind.what, kind.code, kind.name); err != nil {
			return fmt.Errorf("%s: %w", kind.what, err)
		}
	}
	return nil
}

// query looks up as many names as some workers can, after every name was looked up once.
func (a *trafficTrial) query(ctx context.Context, what string, code dnsmessage.RCode, name func(int) string) error {
	const hands = 16
	var mu sync.Mutex // guards took and errs
	var took []time.Duration
	var errs []error
	ask := func(window time.Duration, limit int) {
		var wg sync.WaitGroup
		deadline := time.Now().Add(window)
		for h := range hands {
			wg.Go(func() {
				mine, err := a.questions(ctx, code, func(i int) string { return name(i*hands + h) }, deadline, limit/hands)
				mu.Lock()
				defer mu.Unlock()
				took, errs = append(took, mine...), append(errs, err)
			})
		}
		wg.Wait()
	}
	ask(time.Minute, a.filled)
	if err := errors.Join(errs...); err != nil {
		return err
	}
	took, errs = nil, nil
	before, err := benchrun.ProcessorTimeWithChildren(a.names())
	if err != nil {
		return err
	}
	start := time.Now()
	ask(a.Set.Window, 1<<40)
	lasted := time.Since(start)
	after, err := benchrun.ProcessorTimeWithChildren(a.names())
	if err := errors.Join(append(errs, err)...); err != nil {
		return err
	}
	a.R.Add("DNS, "+what, "/s", float64(len(took))/lasted.Seconds(), benchrun.Higher)
	a.R.Add("DNS, "+what+", p50", "ms", benchrun.Millis(took, 50), benchrun.Lower)
	a.R.Add("DNS, "+what+", p99", "ms", benchrun.Millis(took, 99), benchrun.Lower)
	a.R.Add("DNS, "+what+", processor time of 1000", "ms", float64(after-before)/float64(time.Millisecond)/float64(len(took))*1000,
		benchrun.Lower)
	return nil
}

// questions looks up names one after the other over one socket.
func (a *trafficTrial) questions(ctx context.Context, code dnsmessage.RCode, name func(int) string, deadline time.Time,
	limit int) (took []time.Duration, err error) {
	var socket net.Conn
	err = a.client.Do(func() (err error) {
		socket, err = net.Dial("udp", net.JoinHostPort(arenaDNS, "53"))
		return err
	})
	if err != nil {
		return nil, err
	}
	defer socket.Close()
	buf := make([]byte, 4096)
	for i := 0; i < limit && ctx.Err() == nil && time.Now().Before(deadline); i++ {
		packet, err := question(uint16(i), name(i))
		if err != nil {
			return nil, err
		}
		start := time.Now()
		got, answers, err := exchange(socket, packet, buf, uint16(i))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name(i), err)
		}
		took = append(took, time.Since(start))
		if got != code || code == dnsmessage.RCodeSuccess && answers == 0 {
			return nil, fmt.Errorf("%s: the answer is %s with %d records", name(i), got, answers)
		}
	}
	return took, nil
}

// question returns the packet of a query for the address of a name.
func question(id uint16, name string) ([]byte, error) {
	n, err := dnsmessage.NewName(name)
	if err != nil {
		return nil, err
	}
	m := dnsmessage.Message{
		Header:    dnsmessage.Header{ID: id, RecursionDesired: true},
		Questions: []dnsmessage.Question{{Name: n, Type: dnsmessage.TypeA, Class: dnsmessage.ClassINET}},
	}
	return m.Pack()
}

// exchange sends a query until it is answered, as resolvers do, and returns the response code and the number of
// records.
func exchange(socket net.Conn, packet, buf []byte, id uint16) (dnsmessage.RCode, int, error) {
	var last error
	for range 5 {
		if _, err := socket.Write(packet); err != nil {
			last = err
			time.Sleep(100 * time.Millisecond)
			continue
		}
		_ = socket.SetReadDeadline(time.Now().Add(2 * time.Second))
		for {
			n, err := socket.Read(buf)
			if err != nil {
				last = err
				break
			}
			var m dnsmessage.Message
			if err := m.Unpack(buf[:n]); err == nil && m.ID == id {
				return m.RCode, len(m.Answers), nil
			}
		}
	}
	return 0, 0, last
}
