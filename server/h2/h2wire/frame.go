// Package h2wire is the wire format of HTTP/2: frames, settings and error codes (RFC 9113), and header lists with their
// compression (RFC 7541). It knows neither connections nor streams.
package h2wire

import (
	"encoding/binary"
	"fmt"
)

// FrameType is the type of a frame.
type FrameType uint8

// The frame types of RFC 9113. Unknown types are ignored.
const (
	FrameData         FrameType = 0x0
	FrameHeaders      FrameType = 0x1
	FramePriority     FrameType = 0x2
	FrameReset        FrameType = 0x3
	FrameSettings     FrameType = 0x4
	FramePush         FrameType = 0x5
	FramePing         FrameType = 0x6
	FrameGoAway       FrameType = 0x7
	FrameWindow       FrameType = 0x8
	FrameContinuation FrameType = 0x9
)

// The flags of frames. ACK and END_STREAM are the same bit, of different frames.
const (
	FlagAck        = 0x1
	FlagEndStream  = 0x1
	FlagEndHeaders = 0x4
	FlagPadded     = 0x8
	FlagPriority   = 0x20
)

// ErrorCode says why a stream or a connection ends.
type ErrorCode uint32

// The error codes of RFC 9113.
const (
	NoError          ErrorCode = 0x0
	ProtocolError    ErrorCode = 0x1
	InternalError    ErrorCode = 0x2
	FlowControlError ErrorCode = 0x3
	StreamClosed     ErrorCode = 0x5
	FrameSizeError   ErrorCode = 0x6
	RefusedStream    ErrorCode = 0x7
	CompressionError ErrorCode = 0x9
	EnhanceYourCalm  ErrorCode = 0xb
	InadequateTLS    ErrorCode = 0xc // INADEQUATE_SECURITY
)

// The settings that this server reads or sends.
const (
	SettingTableSize = 0x1
	SettingPush      = 0x2
	SettingStreams   = 0x3
	SettingWindow    = 0x4
	SettingFrame     = 0x5
	SettingHeaders   = 0x6
)

// Sizes that RFC 9113 fixes, and the initial values of settings.
const (
	FrameHeaderSize  = 9
	SmallestFrame    = 16384
	LargestFrame     = 1<<24 - 1
	LargestWindow    = 1<<31 - 1
	DefaultWindow    = 65535
	DefaultTableSize = 4096
)

// Preface is what a client sends first.
const Preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

// Frame is the header of a frame.
type Frame struct {
	Size   int
	Type   FrameType
	Flags  uint8
	Stream uint32
}

// Has reports whether a flag is set.
func (f Frame) Has(flag uint8) bool { return f.Flags&flag != 0 }

// ParseFrame decodes the header of a frame from its nine bytes.
func ParseFrame(b []byte) Frame {
	return Frame{
		Size:   int(b[0])<<16 | int(b[1])<<8 | int(b[2]),
		Type:   FrameType(b[3]),
		Flags:  b[4],
		Stream: binary.BigEndian.Uint32(b[5:]) & LargestWindow,
	}
}

// AppendFrame appends the header of a frame.
func AppendFrame(b []byte, f Frame) []byte {
	return append(b, byte(f.Size>>16), byte(f.Size>>8), byte(f.Size), byte(f.Type), f.Flags,
		byte(f.Stream>>24), byte(f.Stream>>16), byte(f.Stream>>8), byte(f.Stream))
}

// Setting is one entry of a SETTINGS frame.
type Setting struct {
	ID    uint16
	Value uint32
}

// AppendSettings appends a SETTINGS frame.
func AppendSettings(b []byte, all ...Setting) []byte {
	b = AppendFrame(b, Frame{Size: 6 * len(all), Type: FrameSettings})
	for _, s := range all {
		b = binary.BigEndian.AppendUint16(b, s.ID)
		b = binary.BigEndian.AppendUint32(b, s.Value)
	}
	return b
}

// AppendWindowUpdate appends a WINDOW_UPDATE frame of a stream, or with 0 of the connection.
func AppendWindowUpdate(b []byte, stream uint32, more int) []byte {
	b = AppendFrame(b, Frame{Size: 4, Type: FrameWindow, Stream: stream})
	return binary.BigEndian.AppendUint32(b, uint32(more))
}

// AppendReset appends a RST_STREAM frame.
func AppendReset(b []byte, stream uint32, why ErrorCode) []byte {
	b = AppendFrame(b, Frame{Size: 4, Type: FrameReset, Stream: stream})
	return binary.BigEndian.AppendUint32(b, uint32(why))
}

// AppendGoAway appends a GOAWAY frame with the last stream that is served.
func AppendGoAway(b []byte, last uint32, why ErrorCode, text string) []byte {
	b = AppendFrame(b, Frame{Size: 8 + len(text), Type: FrameGoAway})
	b = binary.BigEndian.AppendUint32(b, last)
	b = binary.BigEndian.AppendUint32(b, uint32(why))
	return append(b, text...)
}

// AppendHeaders appends a field block as a HEADERS frame, followed by as many CONTINUATION frames as the maximum frame
// size requires.
func AppendHeaders(b []byte, stream uint32, block []byte, end bool, most int) []byte {
	f := Frame{Type: FrameHeaders, Stream: stream}
	if end {
		f.Flags = FlagEndStream
	}
	for {
		f.Size = min(len(block), most)
		if f.Size == len(block) {
			f.Flags |= FlagEndHeaders
		}
		b = append(AppendFrame(b, f), block[:f.Size]...)
		if block = block[f.Size:]; len(block) == 0 {
			return b
		}
		f = Frame{Type: FrameContinuation, Stream: stream}
	}
}

// ConnectionError is an error of the peer that ends the connection.
type ConnectionError struct {
	Code ErrorCode
	Text string
}

func (e *ConnectionError) Error() string { return fmt.Sprintf("HTTP/2: %s (code %d)", e.Text, e.Code) }

// NewError returns a ConnectionError.
func NewError(c ErrorCode, text string) error { return &ConnectionError{c, text} }

// Unpad removes the padding from the payload of a frame.
func Unpad(f Frame, p []byte) ([]byte, error) {
	if !f.Has(FlagPadded) {
		return p, nil
	}
	if len(p) == 0 || int(p[0]) >= len(p) {
		return nil, NewError(ProtocolError, "more padding than payload")
	}
	return p[1 : len(p)-int(p[0])], nil
}
