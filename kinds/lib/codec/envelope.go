package codec

import (
	"encoding/binary"
	"errors"
)

// The fields of the envelope that are parsed: the kind of its content, and the content.
const (
	envelopeType = 1
	envelopeRaw  = 2
	typeVersion  = 1
	typeKind     = 2
)

var errEnvelope = errors.New("the envelope is damaged")

// envelopeContent is the content of an envelope. Its parts are slices of the value.
type envelopeContent struct {
	version, kind, raw []byte
	complete           bool // it has no fields that this parser does not know
}

// parseEnvelope parses an envelope without copying it, if it is laid out as every server writes it; otherwise the library
// parses it.
func parseEnvelope(value []byte) (s envelopeContent, err error) {
	s.complete = true
	err = eachField(value, func(number uint64, body []byte) {
		switch {
		case number == envelopeType:
			if eachField(body, func(number uint64, body []byte) {
				switch number {
				case typeVersion:
					s.version = body
				case typeKind:
					s.kind = body
				}
			}) != nil {
				s.complete = false
			}
		case number == envelopeRaw:
			s.raw = body
		case len(body) > 0: // an encoding or a type of content
			s.complete = false
		}
	})
	return s, err
}

// eachField calls each with the fields of a message, all of which must be strings or bytes.
func eachField(message []byte, each func(number uint64, body []byte)) error {
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
