package conntrack

import (
	"encoding/binary"
	"iter"

	"golang.org/x/sys/unix"
)

// The message types of connection tracking.
const (
	subsystem   = 1 << 8
	messageFlow = subsystem
	messageGet  = subsystem | 1
	messageDrop = subsystem | 2
)

// message is a netlink message.
type message struct {
	kind, flags uint16
	seq         uint32
	body        []byte
}

// messages returns the messages in a buffer, up to a truncated one.
func messages(b []byte) iter.Seq[message] {
	return func(yield func(message) bool) {
		for len(b) >= unix.NLMSG_HDRLEN {
			n := int(binary.NativeEndian.Uint32(b))
			if n < unix.NLMSG_HDRLEN || n > len(b) {
				return
			}
			m := message{
				kind: binary.NativeEndian.Uint16(b[4:]), flags: binary.NativeEndian.Uint16(b[6:]),
				seq: binary.NativeEndian.Uint32(b[8:]), body: b[unix.NLMSG_HDRLEN:n],
			}
			if !yield(m) {
				return
			}
			b = b[min(aligned(n), len(b)):]
		}
	}
}

// fault returns the error code of an acknowledgement or of the end of a dump.
func (m message) fault() error {
	if len(m.body) < 4 {
		return nil
	}
	if n := int32(binary.NativeEndian.Uint32(m.body)); n < 0 {
		return unix.Errno(-n)
	}
	return nil
}

// request is a message to the kernel.
type request struct {
	kind, flags uint16
	seq         uint32
	family      uint8
	attributes  func([]byte) []byte // appends the attributes
}

// appendTo adds the request to a buffer.
func (r request) appendTo(b []byte) []byte {
	start := len(b)
	b = binary.NativeEndian.AppendUint32(b, 0) // the length, which is set below
	b = binary.NativeEndian.AppendUint16(b, r.kind)
	b = binary.NativeEndian.AppendUint16(b, unix.NLM_F_REQUEST|r.flags)
	b = binary.NativeEndian.AppendUint32(b, r.seq)
	b = binary.NativeEndian.AppendUint32(b, 0)
	b = append(b, r.family, unix.NFNETLINK_V0, 0, 0)
	b = r.attributes(b)
	binary.NativeEndian.PutUint32(b[start:], uint32(len(b)-start))
	return b
}

// appendName adds the attributes that identify an entry: its original direction, its ID, which distinguishes it from a
// later entry with the same addresses, and its zone. Without the first, the kernel would delete all entries.
func (f *Flow) appendName(b []byte) []byte {
	for _, whole := range [][]byte{f.tuple, f.id, f.zone} {
		b = append(b, whole...)
		b = append(b, make([]byte, aligned(len(whole))-len(whole))...)
	}
	return b
}
