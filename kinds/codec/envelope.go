package codec

import (
	"encoding/binary"
	"errors"
)

// The fields of the envelope that matter: what is in it, and that.
const (
	envelopeType = 1
	envelopeRaw  = 2
	typeVersion  = 1
	typeKind     = 2
)

var errEnvelope = errors.New("the envelope is damaged")

// sealed is what an envelope holds. Nothing is copied: the parts are those of the value.
type sealed struct {
	version, kind, raw []byte
	plain              bool // it has nothing that this reader does not know
}

// unseal reads an envelope. Everything is read by the library in the end; this is the short way for what is laid out as
// every server does it, without a copy of the whole.
func unseal(value []byte) (s sealed, err error) {
	s.plain = true
	err = fields(value, func(number uint64, body []byte) {
		switch {
		case number == envelopeType:
			if fields(body, func(number uint64, body []byte) {
				switch number {
				case typeVersion:
					s.version = body
				case typeKind:
					s.kind = body
				}
			}) != nil {
				s.plain = false
			}
		case number == envelopeRaw:
			s.raw = body
		case len(body) > 0: // an encoding or a type of content
			s.plain = false
		}
	})
	return s, err
}

// fields calls each with the fields of a message, all of which must be strings or bytes.
func fields(message []byte, each func(number uint64, body []byte)) error {
	for len(message) > 0 {
		tag, n := binary.Uvarint(message)
		if n <= 0 || tag&7 != 2 {
			return errEnvelope
		}
		message = message[n:]
		size, n := binary.Uvarint(message)
		if n <= 0 || size > uint64(len(message)-n) {
			return errEnvelope
		}
		each(tag>>3, message[n:uint64(n)+size])
		message = message[uint64(n)+size:]
	}
	return nil
}
