// Package conntrack makes the kernel forget connections. It remembers for each where its packets go, and what was let through
// when it began is not judged again; so when an endpoint goes, or an address gets another owner, connections are to be dropped.
//
// To find them is a pass over all that the kernel knows, which is tens of thousands on a busy node. The kernel is told what to leave
// out, and of what it shows only the ends are read, where they are.
package conntrack

import (
	"errors"
	"fmt"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// buffer is the most that the kernel shows at once.
	buffer = 32 << 10
	// answer is the most that it says to one question.
	answer = 4 << 10
	// batch is how many connections are dropped with one call. Each may be answered, and the answers must fit the socket.
	batch = 64
	// attempts is how often a pass is begun that the kernel says it could not make whole.
	attempts = 3
	// patience is how long the kernel may take for an answer. It gives it before a call returns.
	patience = 10 * time.Second
)

// What a pass may end with.
var (
	errInterrupted = errors.New("connections have changed too fast for all of them to be seen")
	errRefused     = errors.New("the kernel does not understand which connections it is asked for")
)

// Conn is a way to the connections of one network namespace, for one caller at a time.
type Conn struct {
	// show is for passes and drop for what is to go: a pass is not over when the first is found.
	show, drop *socket
	buffer     []byte
	flow       Flow
}

// Open makes one, in the network namespace that the thread is in.
func Open() (*Conn, error) {
	show, err := open()
	if err != nil {
		return nil, fmt.Errorf("open connection tracking: %w", err)
	}
	drop, err := open()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open connection tracking: %w", err), show.close())
	}
	return &Conn{show: show, drop: drop, buffer: make([]byte, buffer)}, nil
}

// Close ends it.
func (c *Conn) Close() error { return errors.Join(c.show.close(), c.drop.close()) }

// Drop makes the kernel forget those connections among the ones that filter names for which lost says so. It is told about
// each and must not keep what it is told. One may be shown twice.
func (c *Conn) Drop(filter Filter, lost func(*Flow) bool) error {
	return insist(filter, func(ask Filter) error { return c.pass(ask, filter, lost) })
}

// insist makes passes until one is whole, but not forever. A kernel that does not know a filter is asked without.
func insist(filter Filter, pass func(ask Filter) error) (err error) {
	for range attempts {
		err = pass(filter)
		if errors.Is(err, errRefused) && filter.narrow() {
			filter = Filter{Six: filter.Six}
			err = pass(filter)
		}
		if !errors.Is(err, errInterrupted) {
			return err
		}
	}
	return err
}

// Forget drops all connections that begin or end at addresses.
func (c *Conn) Forget(of map[netip.Addr]bool) error {
	ends := func(f *Flow) bool {
		return of[f.Asked.From.Addr()] || of[f.Asked.To.Addr()] || of[f.Answered.From.Addr()] || of[f.Answered.To.Addr()]
	}
	var four, six bool
	for a := range of {
		four, six = four || a.Is4(), six || a.Is6()
	}
	var err error
	if four {
		err = c.Drop(Filter{}, ends)
	}
	if six {
		err = errors.Join(err, c.Drop(Filter{Six: true}, ends))
	}
	return err
}

// pass is one look at what the kernel shows when it is asked.
func (c *Conn) pass(ask, filter Filter, lost func(*Flow) bool) error {
	seq := c.show.next()
	if err := c.show.send(appendMessage(nil, messageGet, unix.NLM_F_DUMP, seq, ask.family(), ask.appendTo)); err != nil {
		return fmt.Errorf("ask for connections: %w", err)
	}
	doomed, interrupted := doomed{family: ask.family(), to: c.drop}, false
	for {
		n, err := c.show.receive(c.buffer)
		if errors.Is(err, unix.EMSGSIZE) || errors.Is(err, unix.ENOBUFS) {
			interrupted = true // a part is lost; and the socket takes no other question before it has shown the rest
			continue
		}
		if err != nil {
			return fmt.Errorf("read connections: %w", err)
		}
		for m := range messages(c.buffer[:n]) {
			if m.seq != seq {
				continue
			}
			interrupted = interrupted || m.flags&unix.NLM_F_DUMP_INTR != 0
			switch m.kind {
			case unix.NLMSG_DONE, unix.NLMSG_ERROR:
				return doomed.end(m.fault(), interrupted)
			case messageFlow:
				if c.flow.read(m.body) && filter.has(&c.flow) && lost(&c.flow) {
					doomed.add(&c.flow)
				}
			}
		}
	}
}

// doomed are connections that are to be dropped, a batch at a time.
type doomed struct {
	to        *socket
	family    uint8
	questions []byte
	count     int
	answers   []byte
	err       error // the first
}

func (d *doomed) add(f *Flow) {
	d.questions = appendMessage(d.questions, messageDrop, unix.NLM_F_ACK, d.to.next(), d.family, f.appendName)
	d.count++
	if d.count == batch {
		d.flush()
	}
}

// flush drops those that are in the batch. That one is gone already is what is wanted.
func (d *doomed) flush() {
	if d.count == 0 {
		return
	}
	if d.answers == nil {
		d.answers = make([]byte, answer)
	}
	err := d.to.ask(d.questions, d.count, d.answers)
	if d.err == nil {
		d.err = err
	}
	d.questions, d.count = d.questions[:0], 0
}

// end drops what is left to drop, and says what became of the pass.
func (d *doomed) end(fault error, interrupted bool) error {
	d.flush()
	switch {
	case errors.Is(fault, unix.EINVAL) || errors.Is(fault, unix.EOPNOTSUPP):
		return fmt.Errorf("%w: %w", errRefused, fault)
	case fault != nil:
		return fmt.Errorf("read connections: %w", fault)
	case d.err != nil:
		return fmt.Errorf("drop a connection: %w", d.err)
	case interrupted:
		return errInterrupted
	}
	return nil
}
