package codec

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
)

// The peak memory of decoding in bytes, as measured by TestCostBoundsMemory, for each character that can begin a value: the most
// expensive value that it can begin. An object of three bytes, {}, can become an element of a list of large Go structs, which
// grows by being copied.
const (
	costObject  = 1600 // "{" of JSON and YAML
	costKey     = 720  // ":" or "?" of YAML
	costEntry   = 720  // "-" of YAML
	costItem    = 360  // "," or "[" of YAML
	costValue   = 72   // ":" "," or "[" of JSON
	costMessage = 2000 // bytes in protobuf that can be a message
	costField   = 64   // any other field of protobuf
	costText    = 8    // a byte of text
	costRaw     = 4    // a byte of protobuf
	costAliases = 400_000 * 400
)

// maxMessageDepth bounds how deep Cost reads messages of protobuf. Below it all bytes count as messages.
const maxMessageDepth = 64

// Cost returns an upper bound, about, of the memory in bytes that decoding data takes. It takes one pass over data
// without allocations, so that a request can be refused, or wait, before the memory is used. It counts every byte
// that could begin a value, also in strings of YAML and comments: an estimate may be too high but not too low.
func Cost(m Media, data []byte) int64 {
	switch m {
	case Proto:
		c := costProto(bytes.TrimPrefix(data, envelope), 0)
		return costRaw*int64(len(data)) + c.whole + c.worst
	case YAML:
		return costYAML(data)
	case JSON:
	}
	return costText*int64(len(data)) + costJSON(data, costValue)
}

// costYAML is Cost for YAML. JSON is YAML too, and its strings can be told apart.
func costYAML(data []byte) int64 {
	text := costText * int64(len(data))
	if t := bytes.TrimLeft(data, " \t\r\n"); len(t) > 0 && t[0] == '{' && json.Valid(t) {
		return text + costJSON(t, costItem)
	}
	var n [256]int64
	entries := int64(0)
	for i, c := range data {
		n[c]++
		if c == '-' && (i+1 == len(data) || isSeparator(data[i+1])) {
			entries++
		}
	}
	text += n['{']*costObject + (n[':']+n['?'])*costKey + entries*costEntry + (n[',']+n['['])*costItem
	if n['&'] > 0 && n['*'] > 0 && hasAlias(data) {
		text += costAliases
	}
	return text
}

// isSeparator reports whether a character can follow the "-" of a YAML list: a blank, a line break, or the first byte of one of the
// line breaks of Unicode.
func isSeparator(c byte) bool { return c <= ' ' || c == 0xc2 || c == 0xe2 }

// hasAlias reports whether YAML may use an alias: an ampersand with a name, and later an asterisk with one. The
// decoder refuses documents that aliases expand beyond costAliases.
func hasAlias(data []byte) bool {
	named := func(mark byte, from int) int {
		for i := from; i+1 < len(data); i++ {
			at := bytes.IndexByte(data[i:], mark)
			if at < 0 {
				return -1
			}
			if i += at; i+1 < len(data) && isNameByte(data[i+1]) && (i == 0 || !isNameByte(data[i-1])) {
				return i
			}
		}
		return -1
	}
	anchor := named('&', 0)
	return anchor >= 0 && named('*', anchor) >= 0
}

func isNameByte(c byte) bool {
	return c == '_' || c == '-' || c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= 0x80
}

// costJSON returns the cost of the values of JSON besides its text; value is the cost of one that is no object.
func costJSON(data []byte, value int64) (sum int64) {
	for i := 0; i < len(data); i++ {
		switch data[i] {
		case '"':
			i = endOfString(data, i+1)
		case '{':
			sum += costObject
		case ':', ',', '[':
			sum += value
		}
	}
	return sum
}

// Nesting returns the depth of JSON, and the sum of the depths of all its bytes: code that decodes every nested value
// again, as merge patches are applied, copies that many bytes.
func Nesting(data []byte) (deepest int, sum int64) {
	depth, from := 0, 0
	for i := 0; i < len(data); i++ {
		step := 0
		switch data[i] {
		case '"':
			i = endOfString(data, i+1)
			continue
		case '{', '[':
			step = 1
		case '}', ']':
			step = -1
		default:
			continue
		}
		sum += int64(depth) * int64(i-from)
		depth, from = depth+step, i
		deepest = max(deepest, depth)
	}
	return deepest, sum
}

// endOfString returns the index of the quote that ends a string of JSON.
func endOfString(data []byte, i int) int {
	for i < len(data) {
		at := bytes.IndexByte(data[i:], '"')
		if at < 0 {
			return len(data)
		}
		i += at
		slashes := 0
		for i-slashes > 0 && data[i-slashes-1] == '\\' {
			slashes++
		}
		if slashes%2 == 0 {
			return i
		}
		i++
	}
	return i
}

// protoCost is the cost of bytes if they are a message.
type protoCost struct {
	whole      int64 // of the fields that are well-formed
	worst      int64 // of the largest malformed message in them, before decoding fails
	wellFormed bool
}

// costProto returns the cost of the fields of a message. Which bytes are a message is unknown, so all are parsed as
// one. Decoding ends with the first message that is malformed.
func costProto(message []byte, depth int) (c protoCost) {
	if depth > maxMessageDepth {
		return protoCost{whole: int64(len(message)/2+1) * costMessage, wellFormed: true}
	}
	for len(message) > 0 {
		tag, n := binary.Uvarint(message)
		if n <= 0 || tag>>3 == 0 {
			return c.malformed()
		}
		size, n, ok := protoSize(tag&7, message[n:], n)
		if !ok || size > uint64(len(message)-n) {
			return c.malformed()
		}
		body := message[n : uint64(n)+size]
		message = message[uint64(n)+size:]
		c.whole += costField
		if tag&7 != 2 {
			continue
		}
		in := costProto(body, depth+1)
		c.worst = max(c.worst, in.worst)
		if in.wellFormed {
			c.whole += costMessage + in.whole
		}
	}
	c.wellFormed = true
	return c
}

// malformed returns the cost of a message that is malformed from here on.
func (c protoCost) malformed() protoCost {
	return protoCost{worst: c.whole + c.worst}
}

// protoSize returns the size and the start of the value of a field: at is the length of its tag.
func protoSize(wire uint64, rest []byte, at int) (size uint64, begin int, ok bool) {
	switch wire {
	case 0:
		_, n := binary.Uvarint(rest)
		return uint64(max(n, 0)), at, n > 0
	case 1:
		return 8, at, true
	case 2:
		size, n := binary.Uvarint(rest)
		return size, at + max(n, 0), n > 0
	case 5:
		return 4, at, true
	}
	return 0, at, false
}
