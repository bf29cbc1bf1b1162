// Package connlimit bounds the connections of a process over all its listeners, before TLS, so that no client takes the
// descriptors that the others, the store and the work of the process need.
//
// A connection belongs to a class, and each class has a share of the budget that nobody else can use. A listener whose
// requests are authenticated begins with Unauthenticated; the first request that is authenticated moves its connection
// to Authenticated, or to Administrator. When a class is full, a new connection still gets in: the owner that holds
// most of the class loses one for it, idle ones first. Owners are addresses, and users once they are known.
package connlimit

import (
	"container/list"
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"k8s.io/apiserver/pkg/authentication/user"
)

// Class says whose connections share a part of the budget.
type Class int32

const (
	// Unauthenticated connections have had no request that was authenticated.
	Unauthenticated Class = iota
	// Authenticated connections belong to a user.
	Authenticated
	// Administrator connections belong to a member of system:masters.
	Administrator
	// Public connections are those of listeners that authenticate nobody, such as the ports of Ingresses.
	Public
	// Local connections come by a socket in a folder that only root can open.
	Local
	classes
)

// String returns the class as metrics name it.
func (c Class) String() string {
	return [classes]string{"unauthenticated", "authenticated", "administrator", "public", "local"}[c]
}

// shares are the parts of the budget that the classes have, in sixteenths.
var shares = [classes]int{Unauthenticated: 4, Authenticated: 5, Administrator: 2, Public: 4, Local: 1}

const (
	// maxConnections is the largest budget, however many descriptors a process may have.
	maxConnections = 1 << 16
	// minConnections is the smallest one.
	minConnections = 64
	// connectionMemory is about what a connection costs that does nothing: TLS, buffers and a goroutine.
	connectionMemory = 40 << 10
	// searched is how many connections of an owner are looked at to find one that is idle.
	searched = 256
	// warnPause is the time between two warnings that a class is full.
	warnPause = time.Minute
)

// ForProcess returns the connections that a process has descriptors and memory for: three eighths of its descriptors,
// since the connection of a client often needs a second one to where its request leads, and an eighth of the memory.
// The runtime of Go has raised the soft limit of descriptors to the hard one. A memory of 0 is unknown.
func ForProcess(memory int64) int {
	n := int64(maxConnections)
	var files syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &files) == nil && files.Cur < 1<<32 {
		n = min(n, int64(files.Cur)*3/8)
	}
	if memory > 0 {
		n = min(n, memory/8/connectionMemory)
	}
	return int(max(n, minConnections))
}

// Budget is shared by all listeners of a process. A nil Budget limits nothing.
type Budget struct {
	log     *slog.Logger
	limit   [classes]int
	streams streams

	mu     sync.Mutex // guards what follows
	owners [classes]map[string]*list.List
	open   [classes]int
	warned [classes]time.Time
	counts map[countKey]*count
}

// New returns a budget of a number of connections.
func New(connections int, log *slog.Logger) *Budget {
	b := &Budget{log: log, counts: map[countKey]*count{}, streams: newStreams(connections / 4)}
	for c := range classes {
		b.limit[c], b.owners[c] = max(connections*shares[c]/16, 1), map[string]*list.List{}
	}
	return b
}

// Conn is a connection that counts in a budget.
type Conn struct {
	net.Conn
	budget   *Budget
	listener string
	opened   time.Time
	class    atomic.Int32
	// idle is since when no request is served, in nanoseconds since 1970; 0 while one is.
	idle atomic.Int64

	// The budget's lock guards what follows.
	owner   string
	element *list.Element // nil when the connection has been closed
}

// admit counts a new connection.
func (b *Budget) admit(c net.Conn, listener string, class Class) net.Conn {
	if b == nil {
		return c
	}
	out := &Conn{Conn: c, budget: b, listener: listener, owner: address(c), opened: time.Now()}
	out.class.Store(int32(class))
	out.idle.Store(out.opened.UnixNano())
	b.mu.Lock()
	b.add(out, class)
	victim := b.makeRoom(class, out)
	b.mu.Unlock()
	victim.evict()
	return out
}

// Authenticate records that a request of the connection is that of a user. The fast path takes no lock.
func (c *Conn) Authenticate(name string, groups []string) {
	if c == nil || name == user.Anonymous {
		return
	}
	want := Authenticated
	if have := Class(c.class.Load()); have > Authenticated {
		return
	} else if isAdministrator(groups) {
		want = Administrator
	} else if have == Authenticated {
		return
	}
	b := c.budget
	b.mu.Lock()
	var victim *Conn
	if have := Class(c.class.Load()); c.element != nil && have < want {
		b.remove(c)
		c.owner = ownerOf(name)
		c.class.Store(int32(want))
		b.add(c, want)
		victim = b.makeRoom(want, c)
	}
	b.mu.Unlock()
	victim.evict()
}

func isAdministrator(groups []string) bool {
	return slices.Contains(groups, user.SystemPrivilegedGroup)
}

// ownerOf returns who shares the connections of a user: the service accounts of a namespace have theirs together, since
// whoever may create one may create many.
func ownerOf(name string) string {
	if rest, ok := strings.CutPrefix(name, "system:serviceaccount:"); ok {
		namespace, _, _ := strings.Cut(rest, ":")
		return "system:serviceaccounts:" + namespace
	}
	return name
}

// address returns the owner of a connection whose user is not known: the address of the client, of IPv6 its network of
// 64 bits, since whoever has one address there has all.
func address(c net.Conn) string {
	from := c.RemoteAddr()
	if from == nil {
		return ""
	}
	at, err := netip.ParseAddrPort(from.String())
	if err != nil {
		return ""
	}
	ip := at.Addr().Unmap().WithZone("")
	if ip.Is6() && !ip.IsLoopback() {
		if p, err := ip.Prefix(64); err == nil {
			return p.String()
		}
	}
	return ip.String()
}

// SetIdle records since when no request of the connection is served; the zero time says that one is.
func (c *Conn) SetIdle(since time.Time) {
	switch {
	case c == nil:
	case since.IsZero():
		c.idle.Store(0)
	default:
		c.idle.Store(since.UnixNano())
	}
}

// Close closes the connection, which no longer counts.
func (c *Conn) Close() error {
	c.budget.mu.Lock()
	c.budget.remove(c)
	c.budget.mu.Unlock()
	return c.Conn.Close()
}

// evict closes a connection because another one needs its place.
func (c *Conn) evict() {
	if c != nil {
		_ = c.Conn.Close() // whoever serves it gets an error
	}
}

// add counts a connection in a class. The lock is held.
func (b *Budget) add(c *Conn, class Class) {
	all := b.owners[class][c.owner]
	if all == nil {
		all = list.New()
		b.owners[class][c.owner] = all
	}
	c.element = all.PushBack(c)
	b.open[class]++
	b.count(c.listener, class).open++
}

// remove takes a connection out of its class, unless it has left already. The lock is held.
func (b *Budget) remove(c *Conn) {
	if c.element == nil {
		return
	}
	class := Class(c.class.Load())
	all := b.owners[class][c.owner]
	all.Remove(c.element)
	if c.element = nil; all.Len() == 0 {
		delete(b.owners[class], c.owner)
	}
	b.open[class]--
	b.count(c.listener, class).open--
}

// makeRoom takes a connection out of a class that holds too many, for the caller to close; nil if there is room. Of the
// owners it takes the one that holds most. The lock is held.
func (b *Budget) makeRoom(class Class, newest *Conn) *Conn {
	if b.open[class] <= b.limit[class] {
		return nil
	}
	if time.Since(b.warned[class]) >= warnPause {
		b.warned[class] = time.Now()
		b.log.Warn("a share of the connections is full: for each new one, the client that holds most loses one",
			"share", class.String(), "connections", b.limit[class], "owners", len(b.owners[class]))
	}
	return b.take(class, newest)
}

// take takes a connection of the owner that holds most of a class; nil if there is none but newest. The lock is held.
func (b *Budget) take(class Class, newest *Conn) *Conn {
	var most *list.List
	for _, all := range b.owners[class] {
		if all.Len() == 1 && all.Front().Value == any(newest) {
			continue
		}
		if most == nil || all.Len() > most.Len() || all.Len() == most.Len() && oldest(all).opened.Before(oldest(most).opened) {
			most = all
		}
	}
	if most == nil {
		return nil
	}
	out := chooseVictim(most, newest, class)
	b.count(out.listener, class).closed++
	b.remove(out)
	return out
}

func oldest(all *list.List) *Conn { return all.Front().Value.(*Conn) }

// chooseVictim returns the connection of an owner to close: the oldest, or of its oldest ones the one that is idle for
// longest. Requests of unauthenticated connections earn them nothing: a client that has just connected, and is about to
// authenticate, goes last. It never returns newest.
func chooseVictim(all *list.List, newest *Conn, class Class) (out *Conn) {
	var since int64
	e := all.Front()
	for range min(all.Len(), searched) {
		c := e.Value.(*Conn)
		e = e.Next()
		if c == newest {
			continue
		}
		if idle := c.idle.Load(); out == nil || class != Unauthenticated && idle > 0 && (since == 0 || idle < since) {
			out, since = c, idle
		}
	}
	return out
}

// free closes a connection of those that nobody has authenticated, because the process has no descriptors left.
func (b *Budget) free() {
	if b == nil {
		return
	}
	b.mu.Lock()
	class := Unauthenticated
	if b.open[Public] > b.open[Unauthenticated] {
		class = Public
	}
	victim := b.take(class, nil)
	b.mu.Unlock()
	victim.evict()
}

// NetConn returns the connection that is counted.
func (c *Conn) NetConn() net.Conn { return c.Conn }

// SyscallConn returns the socket.
func (c *Conn) SyscallConn() (syscall.RawConn, error) {
	if s, ok := c.Conn.(syscall.Conn); ok {
		return s.SyscallConn()
	}
	return nil, syscall.EINVAL
}

// CloseWrite closes the direction to the client.
func (c *Conn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return syscall.EINVAL
}

// SetLinger sets what Close does with what was not sent.
func (c *Conn) SetLinger(seconds int) error {
	if s, ok := c.Conn.(interface{ SetLinger(seconds int) error }); ok {
		return s.SetLinger(seconds)
	}
	return syscall.EINVAL
}

// ReadFrom sends what it reads, within the kernel where that is possible.
func (c *Conn) ReadFrom(r io.Reader) (int64, error) { return io.Copy(c.Conn, r) }

// WriteTo passes on what it receives, within the kernel where that is possible.
func (c *Conn) WriteTo(w io.Writer) (int64, error) { return io.Copy(w, c.Conn) }

// Of returns the counted connection below TLS; nil if it does not count.
func Of(c net.Conn) *Conn {
	for {
		if out, ok := c.(*Conn); ok {
			return out
		}
		outer, ok := c.(interface{ NetConn() net.Conn })
		if !ok {
			return nil
		}
		c = outer.NetConn()
	}
}

type connKey struct{}

// WithConn is the ConnContext of an http.Server: FromContext finds the connection of a request.
func WithConn(ctx context.Context, c net.Conn) context.Context {
	if out := Of(c); out != nil {
		return context.WithValue(ctx, connKey{}, out)
	}
	return ctx
}

// FromContext returns the connection of a request; nil if it does not count.
func FromContext(ctx context.Context) *Conn {
	c, _ := ctx.Value(connKey{}).(*Conn)
	return c
}

// ConnState is the hook of an http.Server by which it knows which connections are idle.
func ConnState(c net.Conn, s http.ConnState) {
	switch s {
	case http.StateIdle:
		Of(c).SetIdle(time.Now())
	case http.StateActive, http.StateHijacked:
		Of(c).SetIdle(time.Time{})
	}
}
