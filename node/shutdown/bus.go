package shutdown

import (
	"bufio"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Bus is a connection to the system's D-Bus.
type Bus struct {
	conn *net.UnixConn

	mu      sync.Mutex // guards what follows
	serial  uint32
	waiting map[uint32]chan *message
	signals chan *message
	err     error
}

// callTimeout is the timeout of a method call.
const callTimeout = 10 * time.Second

// OpenBus connects to the system bus.
func OpenBus(ctx context.Context) (*Bus, error) {
	for _, path := range []string{"/run/dbus/system_bus_socket", "/var/run/dbus/system_bus_socket"} {
		if _, err := os.Stat(path); err == nil {
			return Dial(ctx, path)
		}
	}
	return nil, ErrNoBus
}

// Dial connects to a bus and authenticates.
func Dial(ctx context.Context, path string) (*Bus, error) {
	var d net.Dialer
	c, err := d.DialContext(ctx, "unix", path)
	if err != nil {
		return nil, fmt.Errorf("connect to the bus: %w", err)
	}
	conn, ok := c.(*net.UnixConn)
	if !ok {
		c.Close()
		return nil, errors.New("the bus is no socket")
	}
	b := &Bus{conn: conn, waiting: map[uint32]chan *message{}, signals: make(chan *message, 16)}
	if err := b.authenticate(); err != nil {
		conn.Close()
		return nil, fmt.Errorf("enter the bus: %w", err)
	}
	go b.read()
	if _, err := b.Call("org.freedesktop.DBus", "/org/freedesktop/DBus", "org.freedesktop.DBus", "Hello"); err != nil {
		conn.Close()
		return nil, fmt.Errorf("enter the bus: %w", err)
	}
	return b, nil
}

// authenticate authenticates by the user id, which the bus verifies with the kernel.
func (b *Bus) authenticate() error {
	if err := b.conn.SetDeadline(time.Now().Add(callTimeout)); err != nil {
		return err
	}
	if _, err := fmt.Fprintf(b.conn, "\x00AUTH EXTERNAL %s\r\n", hex.EncodeToString([]byte(strconv.Itoa(os.Geteuid())))); err != nil {
		return err
	}
	// Answers are short lines, and nothing follows them unasked, so a buffered reader of its own loses nothing.
	lines := bufio.NewReaderSize(io.LimitReader(b.conn, 4096), 16)
	for _, ask := range []string{"NEGOTIATE_UNIX_FD\r\n", "BEGIN\r\n"} {
		line, err := lines.ReadString('\n')
		if err != nil {
			return err
		}
		if !strings.HasPrefix(line, "OK") && !strings.HasPrefix(line, "AGREE_UNIX_FD") {
			return fmt.Errorf("the bus says %q", strings.TrimSpace(line))
		}
		if _, err := io.WriteString(b.conn, ask); err != nil {
			return err
		}
	}
	return b.conn.SetDeadline(time.Time{})
}

// Close ends the connection.
func (b *Bus) Close() error { return b.conn.Close() }

// Err returns why the connection has ended.
func (b *Bus) Err() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.err
}

// Call calls a method and waits for its answer.
func (b *Bus) Call(destination, path, iface, member string, args ...value) (*message, error) {
	answer := make(chan *message, 1)
	b.mu.Lock()
	if b.err != nil {
		defer b.mu.Unlock()
		return nil, b.err
	}
	b.serial++
	serial := b.serial
	b.waiting[serial] = answer
	b.mu.Unlock()
	defer func() {
		b.mu.Lock()
		delete(b.waiting, serial)
		b.mu.Unlock()
	}()
	m := &message{kind: methodCall, serial: serial, destination: destination, path: path, iface: iface, Member: member}
	if _, err := b.conn.Write(m.encode(args...)); err != nil {
		return nil, err
	}
	t := time.NewTimer(callTimeout)
	defer t.Stop()
	select {
	case r, open := <-answer:
		switch {
		case !open:
			return nil, b.Err()
		case r.kind == failure:
			return nil, fmt.Errorf("%s: %s", r.failure, r.body().str())
		}
		return r, nil
	case <-t.C:
		return nil, fmt.Errorf("%s.%s is not answered", iface, member)
	}
}

// Signals subscribes to signals that match a rule. The channel is closed when the connection ends.
func (b *Bus) Signals(rule string) (<-chan *message, error) {
	_, err := b.Call("org.freedesktop.DBus", "/org/freedesktop/DBus", "org.freedesktop.DBus", "AddMatch", stringValue(rule))
	return b.signals, err
}

// read dispatches messages until the connection ends.
func (b *Bus) read() {
	var err error
	for err == nil {
		var m *message
		if m, err = b.next(); err != nil {
			break
		}
		b.mu.Lock()
		answer := b.waiting[m.reply]
		b.mu.Unlock()
		switch {
		case m.kind == signal:
			select {
			case b.signals <- m:
			default: // the receiver is too slow
			}
		case answer != nil && (m.kind == methodReturn || m.kind == failure):
			answer <- m
		default:
			for _, f := range m.files {
				f.Close()
			}
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.err = err
	for serial, answer := range b.waiting {
		close(answer)
		delete(b.waiting, serial)
	}
	close(b.signals)
}

// next reads one message, with the file descriptors that come with it.
func (b *Bus) next() (*message, error) {
	buf, files, err := b.fill(nil, 16)
	if err != nil {
		return nil, err
	}
	n, err := size(buf)
	if err != nil {
		return nil, err
	}
	buf, more, err := b.fill(buf, n)
	if err != nil {
		return nil, err
	}
	m, err := decode(buf)
	if err != nil {
		return nil, err
	}
	m.files = append(files, more...)
	return m, nil
}

// fill reads until there are n bytes. File descriptors come as control messages of the socket.
func (b *Bus) fill(buf []byte, n int) (_ []byte, files []*os.File, err error) {
	for len(buf) < n {
		part, beside := make([]byte, n-len(buf)), make([]byte, syscall.CmsgSpace(4*4))
		got, extra, _, _, err := b.conn.ReadMsgUnix(part, beside)
		if err != nil {
			return nil, files, err
		}
		if got == 0 {
			return nil, files, io.EOF
		}
		buf = append(buf, part[:got]...)
		files = append(files, filesIn(beside[:extra])...)
	}
	return buf, files, nil
}

func filesIn(beside []byte) (out []*os.File) {
	all, err := syscall.ParseSocketControlMessage(beside)
	if err != nil {
		return nil
	}
	for i := range all {
		fds, err := syscall.ParseUnixRights(&all[i])
		if err != nil {
			continue
		}
		for _, fd := range fds {
			syscall.CloseOnExec(fd)
			out = append(out, os.NewFile(uintptr(fd), "from the bus"))
		}
	}
	return out
}
