package codec

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"unicode/utf8"
)

// AppendUntyped appends the JSON of a value that has no Go type, such as a custom object: the bytes that
// encoding/json writes, without reflection.
func AppendUntyped(to []byte, value any) ([]byte, error) {
	switch v := value.(type) {
	case nil:
		return append(to, "null"...), nil
	case string:
		return appendText(to, v), nil
	case bool:
		return strconv.AppendBool(to, v), nil
	case int64:
		return strconv.AppendInt(to, v, 10), nil
	case map[string]any:
		return appendMap(to, v)
	case []any:
		if v == nil {
			return append(to, "null"...), nil
		}
		var err error
		to = append(to, '[')
		for i, item := range v {
			if i > 0 {
				to = append(to, ',')
			}
			if to, err = AppendUntyped(to, item); err != nil {
				return nil, err
			}
		}
		return append(to, ']'), nil
	}
	text, err := json.Marshal(value) // floating-point numbers, and types that only callers in this process use
	if err != nil {
		return nil, fmt.Errorf("encode a %T: %w", value, err)
	}
	return append(to, text...), nil
}

// keyLists are reused lists of the keys of maps, which are sorted for every map that is written.
var keyLists = sync.Pool{New: func() any { return new([]string) }}

// appendMap appends a map in the order of its keys.
func appendMap(to []byte, m map[string]any) ([]byte, error) {
	if m == nil {
		return append(to, "null"...), nil
	}
	keys := keyLists.Get().(*[]string)
	defer func() {
		*keys = (*keys)[:0]
		keyLists.Put(keys)
	}()
	for key := range m {
		*keys = append(*keys, key)
	}
	slices.Sort(*keys)
	var err error
	to = append(to, '{')
	for i, key := range *keys {
		if i > 0 {
			to = append(to, ',')
		}
		to = append(appendText(to, key), ':')
		if to, err = AppendUntyped(to, m[key]); err != nil {
			return nil, err
		}
	}
	return append(to, '}'), nil
}

// appendText appends a string. Most have nothing in them that must be escaped.
func appendText(to []byte, s string) []byte {
	for i := range len(s) {
		c := s[i]
		if c < 0x20 || c >= utf8.RuneSelf || c == '"' || c == '\\' || c == '<' || c == '>' || c == '&' {
			text, err := json.Marshal(s)
			if err != nil { // a string is always JSON
				return append(to, `""`...)
			}
			return append(to, text...)
		}
	}
	to = append(to, '"')
	to = append(to, s...)
	return append(to, '"')
}
