package shutdown

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
)

// A D-Bus message is a header of fixed form, an array of fields, and a body whose types are given in a field. This is
// what is needed to speak with logind, and no more; docs/adr/0040-dbus-by-hand.md says why no library is used.

// Kinds of messages.
const (
	methodCall   = 1
	methodReturn = 2
	failure      = 3
	signal       = 4
)

// Fields of a header.
const (
	fieldPath        = 1
	fieldInterface   = 2
	fieldMember      = 3
	fieldError       = 4
	fieldReply       = 5
	fieldDestination = 6
	fieldSignature   = 8
	fieldFiles       = 9
)

// maxMessage limits the size of messages.
const maxMessage = 1 << 20

// message is a D-Bus message.
type message struct {
	kind                                                      byte
	serial, reply                                             uint32
	path, iface, Member, destination, failure, signature, raw string
	files                                                     []*os.File
}

// value is an argument, with its type signature.
type value struct {
	sign string
	put  func(*writer)
}

func stringValue(s string) value { return value{"s", func(w *writer) { w.str(s) }} }
func int32Value(n int32) value   { return value{"i", func(w *writer) { w.uint32(uint32(n)) }} }

// writer encodes values, each aligned to its size.
type writer struct{ bytes.Buffer }

func (w *writer) align(n int) {
	for w.Len()%n != 0 {
		w.WriteByte(0)
	}
}

func (w *writer) uint32(n uint32) {
	w.align(4)
	w.Write(binary.LittleEndian.AppendUint32(nil, n))
}

func (w *writer) str(s string) {
	w.uint32(uint32(len(s)))
	w.WriteString(s)
	w.WriteByte(0)
}

func (w *writer) sig(s string) {
	w.WriteByte(byte(len(s)))
	w.WriteString(s)
	w.WriteByte(0)
}

// encode encodes a message.
func (m *message) encode(args ...value) []byte {
	var body writer
	sign := ""
	for _, a := range args {
		sign += a.sign
		a.put(&body)
	}
	var fields writer
	field := func(code byte, sign, s string) {
		if s == "" {
			return
		}
		fields.align(8)
		fields.WriteByte(code)
		fields.sig(sign)
		if sign == "g" {
			fields.sig(s)
		} else {
			fields.str(s)
		}
	}
	field(fieldPath, "o", m.path)
	field(fieldInterface, "s", m.iface)
	field(fieldMember, "s", m.Member)
	field(fieldError, "s", m.failure)
	field(fieldDestination, "s", m.destination)
	field(fieldSignature, "g", sign)
	for code, n := range map[byte]uint32{fieldReply: m.reply, fieldFiles: uint32(len(m.files))} {
		if n > 0 {
			fields.align(8)
			fields.WriteByte(code)
			fields.sig("u")
			fields.uint32(n)
		}
	}
	var out writer
	out.Write([]byte{'l', m.kind, 0, 1})
	out.uint32(uint32(body.Len()))
	out.uint32(m.serial)
	out.uint32(uint32(fields.Len()))
	out.Write(fields.Bytes())
	out.align(8)
	out.Write(body.Bytes())
	return out.Bytes()
}

// size returns the length of the message that begins with these 16 bytes.
func size(head []byte) (int, error) {
	if len(head) < 16 || head[0] != 'l' || head[3] != 1 {
		return 0, errors.New("what came over the bus is no message")
	}
	body, fields := binary.LittleEndian.Uint32(head[4:]), binary.LittleEndian.Uint32(head[12:])
	if body > maxMessage || fields > maxMessage {
		return 0, fmt.Errorf("a message of %d bytes is too long", uint64(body)+uint64(fields))
	}
	return 16 + (int(fields)+7)/8*8 + int(body), nil
}

// decode decodes a whole message.
func decode(b []byte) (*message, error) {
	n, err := size(b)
	if err != nil || n != len(b) {
		return nil, errors.Join(err, errShort)
	}
	length := int(binary.LittleEndian.Uint32(b[12:]))
	m := &message{kind: b[1], serial: binary.LittleEndian.Uint32(b[8:])}
	r := &reader{b: b[:16+length], at: 16}
	for r.at < len(r.b) {
		r.align(8)
		code, sign := r.byte(), r.sig()
		var s string
		var n uint32
		switch sign {
		case "s", "o":
			s = r.str()
		case "g":
			s = r.sig()
		case "u":
			n = r.uint32()
		default:
			return nil, fmt.Errorf("a field of a message has the type %q", sign)
		}
		if r.err != nil {
			return nil, r.err
		}
		switch code {
		case fieldPath:
			m.path = s
		case fieldInterface:
			m.iface = s
		case fieldMember:
			m.Member = s
		case fieldError:
			m.failure = s
		case fieldReply:
			m.reply = n
		case fieldSignature:
			m.signature = s
		}
	}
	m.raw = string(b[16+(length+7)/8*8:])
	return m, nil
}

var errShort = errors.New("a message ends too early")

// body returns a reader of the arguments.
func (m *message) body() *reader { return &reader{b: []byte(m.raw), sign: m.signature} }

// reader decodes values. After an error it returns zero values.
type reader struct {
	b    []byte
	at   int
	sign string
	err  error
}

func (r *reader) align(n int) { r.at = (r.at + n - 1) / n * n }

// take returns the next n bytes.
func (r *reader) take(n int) []byte {
	if r.err != nil || n < 0 || r.at < 0 || r.at+n > len(r.b) {
		if r.err == nil {
			r.err = errShort
		}
		return make([]byte, min(max(n, 0), 8))
	}
	r.at += n
	return r.b[r.at-n : r.at]
}

func (r *reader) byte() byte { return r.take(1)[0] }

func (r *reader) uint32() uint32 {
	r.align(4)
	return binary.LittleEndian.Uint32(r.take(4))
}

func (r *reader) str() string {
	n := r.uint32()
	if n > maxMessage {
		r.err = errShort
		return ""
	}
	s := string(r.take(int(n)))
	r.take(1)
	return s
}

func (r *reader) sig() string {
	s := string(r.take(int(r.byte())))
	r.take(1)
	return s
}

func (r *reader) boolean() (bool, error) {
	if len(r.sign) == 0 || r.sign[0] != 'b' {
		return false, fmt.Errorf("it is a %q, not a boolean", r.sign)
	}
	n := r.uint32()
	return n != 0, r.err
}

func (r *reader) variantUint64() (uint64, error) {
	if r.sign != "v" || r.sig() != "t" {
		return 0, fmt.Errorf("it is a %q", r.sign)
	}
	r.align(8)
	n := binary.LittleEndian.Uint64(r.take(8))
	return n, r.err
}
