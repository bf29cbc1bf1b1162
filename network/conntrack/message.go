package conntrack

import (
	"encoding/binary"
	"iter"

	"golang.org/x/sys/unix"
)

// The messages of connection tracking.
const (
	subsystem   = 1 << 8
	messageFlow = subsystem
	messageGet  = subsystem | 1
	messageDrop = subsystem | 2
)

// message is one of the kernel's.
type message struct {
	kind, flags uint16
	seq         uint32
	body        []byte
}

// messages are those in what was received at once. They end before one that is not whole.
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

// fault is the error that a message at the end of an answer carries.
func (m message) fault() error {
	if len(m.body) < 4 {
		return nil
	}
	if n := int32(binary.NativeEndian.Uint32(m.body)); n < 0 {
		return unix.Errno(-n)
	}
	return nil
}

// appendMessage adds a message with the attributes that write adds.
func appendMessage(b []byte, kind, flags uint16, seq uint32, family uint8, write func([]byte) []byte) []byte {
	start := len(b)
	b = binary.NativeEndian.AppendUint32(b, 0) // the length, when it is known
	b = binary.NativeEndian.AppendUint16(b, kind)
	b = binary.NativeEndian.AppendUint16(b, unix.NLM_F_REQUEST|flags)
	b = binary.NativeEndian.AppendUint32(b, seq)
	b = binary.NativeEndian.AppendUint32(b, 0)
	b = append(b, family, unix.NFNETLINK_V0, 0, 0)
	b = write(b)
	binary.NativeEndian.PutUint32(b[start:], uint32(len(b)-start))
	return b
}

// appendName adds what the kernel finds a connection by: the direction of the first packet, its number, so that it is no other
// one between the same ends, and its zone. Without the first it would drop all connections that there are.
func (f *Flow) appendName(b []byte) []byte {
	for _, whole := range [][]byte{f.tuple, f.id, f.zone} {
		b = append(b, whole...)
		b = append(b, make([]byte, aligned(len(whole))-len(whole))...)
	}
	return b
}
