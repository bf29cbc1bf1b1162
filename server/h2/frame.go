package h2

import (
	"encoding/binary"
	"fmt"
)

// frameType is the kind of a frame.
type frameType uint8

// The frames of RFC 9113. What is not among them is ignored.
const (
	frameData         frameType = 0x0
	frameHeaders      frameType = 0x1
	framePriority     frameType = 0x2
	frameReset        frameType = 0x3
	frameSettings     frameType = 0x4
	framePush         frameType = 0x5
	framePing         frameType = 0x6
	frameGoAway       frameType = 0x7
	frameWindow       frameType = 0x8
	frameContinuation frameType = 0x9
)

// The flags of frames. An acknowledgement and the end of a stream are the same bit, of different frames.
const (
	flagAck        = 0x1
	flagEndStream  = 0x1
	flagEndHeaders = 0x4
	flagPadded     = 0x8
	flagPriority   = 0x20
)

// code says why a stream or a connection ends.
type code uint32

// The codes of RFC 9113.
const (
	noError          code = 0x0
	protocolError    code = 0x1
	internalError    code = 0x2
	flowControlError code = 0x3
	streamClosed     code = 0x5
	frameSizeError   code = 0x6
	refusedStream    code = 0x7
	compressionError code = 0x9
	enhanceYourCalm  code = 0xb
	inadequateTLS    code = 0xc // INADEQUATE_SECURITY
)

// The settings that are heeded or sent.
const (
	settingTableSize = 0x1
	settingPush      = 0x2
	settingStreams   = 0x3
	settingWindow    = 0x4
	settingFrame     = 0x5
	settingHeaders   = 0x6
)

// Sizes that RFC 9113 fixes, and what holds before a peer has said otherwise.
const (
	headerSize    = 9
	smallestFrame = 16384
	largestFrame  = 1<<24 - 1
	largestWindow = 1<<31 - 1
	defaultWindow = 65535
	defaultTable  = 4096
)

// preface is what a client sends first.
const preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

// frame is the head of a frame.
type frame struct {
	size   int
	kind   frameType
	flags  uint8
	stream uint32
}

func (f frame) has(flag uint8) bool { return f.flags&flag != 0 }

// readFrame reads the head of a frame from its nine bytes.
func readFrame(b []byte) frame {
	return frame{
		size:   int(b[0])<<16 | int(b[1])<<8 | int(b[2]),
		kind:   frameType(b[3]),
		flags:  b[4],
		stream: binary.BigEndian.Uint32(b[5:]) & largestWindow,
	}
}

// appendFrame adds the head of a frame.
func appendFrame(b []byte, f frame) []byte {
	return append(b, byte(f.size>>16), byte(f.size>>8), byte(f.size), byte(f.kind), f.flags,
		byte(f.stream>>24), byte(f.stream>>16), byte(f.stream>>8), byte(f.stream))
}

// choice is one of the settings of a peer.
type choice struct {
	id    uint16
	value uint32
}

func appendSettings(b []byte, all ...choice) []byte {
	b = appendFrame(b, frame{size: 6 * len(all), kind: frameSettings})
	for _, s := range all {
		b = binary.BigEndian.AppendUint16(b, s.id)
		b = binary.BigEndian.AppendUint32(b, s.value)
	}
	return b
}

func appendWindow(b []byte, stream uint32, more int) []byte {
	b = appendFrame(b, frame{size: 4, kind: frameWindow, stream: stream})
	return binary.BigEndian.AppendUint32(b, uint32(more))
}

func appendReset(b []byte, stream uint32, why code) []byte {
	b = appendFrame(b, frame{size: 4, kind: frameReset, stream: stream})
	return binary.BigEndian.AppendUint32(b, uint32(why))
}

func appendGoAway(b []byte, last uint32, why code, text string) []byte {
	b = appendFrame(b, frame{size: 8 + len(text), kind: frameGoAway})
	b = binary.BigEndian.AppendUint32(b, last)
	b = binary.BigEndian.AppendUint32(b, uint32(why))
	return append(b, text...)
}

// appendHeaders adds a block of fields as one frame, and as many continuations as the peer's frames make of it.
func appendHeaders(b []byte, stream uint32, block []byte, end bool, most int) []byte {
	f := frame{kind: frameHeaders, stream: stream}
	if end {
		f.flags = flagEndStream
	}
	for {
		f.size = min(len(block), most)
		if f.size == len(block) {
			f.flags |= flagEndHeaders
		}
		b = append(appendFrame(b, f), block[:f.size]...)
		if block = block[f.size:]; len(block) == 0 {
			return b
		}
		f = frame{kind: frameContinuation, stream: stream}
	}
}

// broken is an error of the peer that ends the connection.
type broken struct {
	code code
	text string
}

func (e *broken) Error() string { return fmt.Sprintf("HTTP/2: %s (code %d)", e.text, e.code) }

func breach(c code, text string) error { return &broken{c, text} }

// unpad takes the padding off the payload of a frame.
func unpad(f frame, p []byte) ([]byte, error) {
	if !f.has(flagPadded) {
		return p, nil
	}
	if len(p) == 0 || int(p[0]) >= len(p) {
		return nil, breach(protocolError, "more padding than payload")
	}
	return p[1 : len(p)-int(p[0])], nil
}
