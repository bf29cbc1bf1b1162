// Package conntrack deletes entries of the connection tracking table of the kernel, and listens for new ones. An entry
// records where the packets of a connection go, and established connections are not checked against the rules again; so
// when an endpoint is removed, or an address gets another owner, entries have to be deleted.
//
// Finding them means a dump of the whole table, which has tens of thousands of entries on a busy node. The kernel
// filters the dump, and only the needed attributes of an entry are parsed, without copies.
package conntrack

import (
	"errors"
	"fmt"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// buffer is the size of the buffer for a dump.
	buffer = 32 << 10
	// answer is the size of the buffer for acknowledgements.
	answer = 4 << 10
	// batch is how many entries are deleted with one call. Each is acknowledged, and the acknowledgements must fit into
	// the socket buffer.
	batch = 64
	// attempts is how often an interrupted dump is repeated.
	attempts = 3
	// patience is the timeout of the socket. The kernel normally answers before a call returns.
	patience = 10 * time.Second
)

// The errors of a pass.
var (
	errInterrupted = errors.New("connections have changed too fast for all of them to be seen")
	errRefused     = errors.New("the kernel does not understand which connections it is asked for")
)

// Conn is a connection to the conntrack table of one network namespace, for one caller at a time.
type Conn struct {
	// show is the socket for dumps and drop the one for deletions, because entries are deleted during a dump.
	show, drop *socket
	buffer     []byte
	flow       Flow
}

// Open returns a Conn for the network namespace that the thread is in.
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

// Close closes the sockets.
func (c *Conn) Close() error { return errors.Join(c.show.close(), c.drop.close()) }

// Drop deletes the entries that match filter and for which isStale returns true. isStale must not keep the Flow that it
// gets. An entry may be shown twice.
func (c *Conn) Drop(filter Filter, isStale func(*Flow) bool) error {
	return retry(filter, func(ask Filter) error { return c.pass(ask, filter, isStale) })
}

// retry repeats interrupted passes a few times. If the kernel does not know a filter, it is asked without.
func retry(filter Filter, pass func(ask Filter) error) (err error) {
	for range attempts {
		err = pass(filter)
		if errors.Is(err, errRefused) && filter.isNarrow() {
			filter = Filter{Six: filter.Six}
			err = pass(filter)
		}
		if !errors.Is(err, errInterrupted) {
			return err
		}
	}
	return err
}

// Forget deletes all entries with one of the addresses as source or destination.
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

// pass is one dump of the table, filtered by the kernel with ask and here with filter.
func (c *Conn) pass(ask, filter Filter, isStale func(*Flow) bool) error {
	seq := c.show.next()
	if err := c.show.send(request{messageGet, unix.NLM_F_DUMP, seq, ask.family(), ask.appendTo}.appendTo(nil)); err != nil {
		return fmt.Errorf("ask for connections: %w", err)
	}
	stale, interrupted := deletions{family: ask.family(), to: c.drop}, false
	for {
		n, err := c.show.receive(c.buffer)
		if errors.Is(err, unix.EMSGSIZE) || errors.Is(err, unix.ENOBUFS) {
			interrupted = true // a part of the dump is lost; the rest must be read before the next request
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
				return stale.end(m.fault(), interrupted)
			case messageFlow:
				if c.flow.read(m.body) && filter.has(&c.flow) && isStale(&c.flow) {
					stale.add(&c.flow)
				}
			}
		}
	}
}

// deletions collects entries and deletes them in batches.
type deletions struct {
	to        *socket
	family    uint8
	questions []byte
	count     int
	answers   []byte
	err       error // the first error
}

func (d *deletions) add(f *Flow) {
	d.questions = request{messageDrop, unix.NLM_F_ACK, d.to.next(), d.family, f.appendName}.appendTo(d.questions)
	d.count++
	if d.count == batch {
		d.flush()
	}
}

// flush deletes the entries of the batch. It is no error if an entry no longer exists.
func (d *deletions) flush() {
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

// end deletes the last batch, and returns the outcome of the pass.
func (d *deletions) end(fault error, interrupted bool) error {
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
