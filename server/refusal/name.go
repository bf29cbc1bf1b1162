package refusal

import (
	"bytes"
	"strconv"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"
	"k8s.io/apimachinery/pkg/util/validation"

	"proa.dev/kinds/lib/codec"
)

// maxScanned is how many bytes of a body are searched for a name. Search takes time in proportion, and does so for clients that may
// do nothing.
const maxScanned = 256 << 10

// ObjectName returns metadata.name of the object in a body that was not decoded, or could not be, so that the record of the refused
// request can be found by the name. It returns nothing if there is no valid name. Nothing is decoded: the body need not be an
// object, and may end early.
func ObjectName(body []byte, media codec.Media) string {
	whole := len(body) <= maxScanned
	if !whole {
		body = body[:maxScanned]
	}
	var name string
	switch media {
	case codec.Proto:
		name = protoName(body)
	case codec.YAML:
		if text := bytes.TrimLeft(body, " \t\r\n"); len(text) == 0 || text[0] != '{' {
			if !whole {
				body = body[:bytes.LastIndexByte(body, '\n')+1] // the last line may have been cut
			}
			name = yamlName(string(body))
			break
		}
		fallthrough
	case codec.JSON:
		name = jsonName(body)
	}
	if !isValidName(name) {
		return ""
	}
	return name
}

// isValidName reports whether a name that nobody has checked may be recorded: a DNS subdomain, in which there may also be colons, as in
// names of roles.
func isValidName(name string) bool {
	return len(name) <= validation.DNS1123SubdomainMaxLength && len(validation.IsDNS1123Subdomain(strings.ReplaceAll(name, ":", "-"))) == 0
}

// jsonName returns metadata.name of a JSON object.
func jsonName(body []byte) string {
	value := jsonMember(jsonMember(body, "metadata"), "name")
	if len(value) == 0 || value[0] != '"' {
		return ""
	}
	end := endOfJSONString(value)
	if end < 0 {
		return ""
	}
	return string(value[1 : end-1]) // with an escape in it, it is no valid name
}

// jsonMember returns the text from the value of a member of a JSON object on; nil if there is none.
func jsonMember(object []byte, key string) []byte {
	rest := skipSpace(object)
	if len(rest) == 0 || rest[0] != '{' {
		return nil
	}
	for {
		rest = skipSpace(rest[1:]) // the brace or comma
		end := endOfJSONString(rest)
		if end < 0 {
			return nil
		}
		found := string(rest[1:end-1]) == key
		if rest = skipSpace(rest[end:]); len(rest) == 0 || rest[0] != ':' {
			return nil
		}
		if rest = skipSpace(rest[1:]); found {
			return rest
		}
		if rest = skipJSONValue(rest); len(rest) == 0 || rest[0] != ',' {
			return nil
		}
	}
}

// skipJSONValue returns the text from the comma or the bracket on that follows a value.
func skipJSONValue(text []byte) []byte {
	for depth, i := 0, 0; i < len(text); i++ {
		switch text[i] {
		case '"':
			end := endOfJSONString(text[i:])
			if end < 0 {
				return nil
			}
			i += end - 1
		case '{', '[':
			depth++
		case '}', ']':
			if depth == 0 {
				return text[i:]
			}
			depth--
		case ',':
			if depth == 0 {
				return text[i:]
			}
		}
	}
	return nil
}

// endOfJSONString returns the index after the closing quote of the string with which a text begins; -1 if it begins with none.
func endOfJSONString(text []byte) int {
	if len(text) == 0 || text[0] != '"' {
		return -1
	}
	for i := 1; i < len(text); i++ {
		switch text[i] {
		case '\\':
			i++
		case '"':
			return i + 1
		}
	}
	return -1
}

func skipSpace(text []byte) []byte { return bytes.TrimLeft(text, " \t\r\n") }

// yamlName returns metadata.name of an object in YAML as people write it: metadata is a block with a line for the name, or is in
// braces with the name before anything nested.
func yamlName(text string) string {
	within, indent := false, 0
	for line := range strings.SplitSeq(text, "\n") {
		inner := strings.TrimLeft(line, " ")
		depth := len(line) - len(inner)
		if inner = strings.TrimSpace(inner); inner == "" || inner[0] == '#' {
			continue
		}
		key, value, _ := strings.Cut(inner, ":")
		value = strings.TrimSpace(value)
		switch {
		case depth == 0 && within:
			return "" // metadata has ended
		case depth == 0 && yamlScalar(key) == "metadata":
			if flow, ok := strings.CutPrefix(value, "{"); ok {
				return flowName(flow)
			}
			within = true
		case within && indent == 0:
			indent = depth
		}
		if within && depth == indent && depth > 0 && yamlScalar(key) == "name" {
			return yamlScalar(value)
		}
	}
	return ""
}

// flowName returns the name among the members of a YAML map in braces that come before anything nested.
func flowName(members string) string {
	if end := strings.IndexAny(members, "{}["); end >= 0 {
		members = members[:end]
	}
	for member := range strings.SplitSeq(members, ",") {
		if key, value, _ := strings.Cut(member, ":"); yamlScalar(key) == "name" {
			return yamlScalar(value)
		}
	}
	return ""
}

// yamlScalar returns a string in YAML without its quotes and without a comment that follows; nothing if the scalar is not a string, as null
// and numbers are not unless they are quoted.
func yamlScalar(text string) string {
	text = strings.TrimSpace(text)
	for _, quote := range []string{`"`, `'`} {
		if rest, ok := strings.CutPrefix(text, quote); ok {
			text, _, _ = strings.Cut(rest, quote)
			return text
		}
	}
	text, _, _ = strings.Cut(text, " #")
	if text = strings.TrimSpace(text); isYAMLConstant(text) || isYAMLNumber(text) {
		return ""
	}
	return text
}

// isYAMLConstant reports whether an unquoted scalar is null or a boolean. Those with capitals are no valid names in any case.
func isYAMLConstant(text string) bool {
	switch text {
	case "null", "true", "false", "yes", "no", "on", "off", "y", "n":
		return true
	}
	return false
}

// isYAMLNumber reports whether an unquoted scalar that could be a name is a number.
func isYAMLNumber(text string) bool {
	if _, err := strconv.ParseUint(text, 0, 64); err == nil {
		return true
	}
	if strings.Trim(text, "0123456789.e-+") != "" {
		return false // Go reads infinities and hexadecimal fractions too, YAML does not
	}
	_, err := strconv.ParseFloat(text, 64)
	return err == nil
}

// protoName returns metadata.name of an object in Kubernetes' protobuf: the envelope has the object in its field 2, every object its
// metadata in field 1, and that the name in field 1.
func protoName(body []byte) string {
	envelope, ok := bytes.CutPrefix(body, []byte("k8s\x00"))
	if !ok {
		return ""
	}
	object, _ := protoField(envelope, 2)
	metadata, _ := protoField(object, 1)
	name, whole := protoField(metadata, 1)
	if !whole {
		return ""
	}
	return string(name)
}

// protoField returns the bytes of the first field with a number, and whether all of them are there: a message may have been cut.
func protoField(message []byte, number protowire.Number) (value []byte, whole bool) {
	for len(message) > 0 {
		found, wire, n := protowire.ConsumeTag(message)
		if n < 0 {
			return nil, false
		}
		if message = message[n:]; found == number && wire == protowire.BytesType {
			size, n := protowire.ConsumeVarint(message)
			if n < 0 {
				return nil, false
			}
			message = message[n:]
			return message[:min(size, uint64(len(message)))], size <= uint64(len(message))
		}
		if n = protowire.ConsumeFieldValue(found, wire, message); n < 0 {
			return nil, false
		}
		message = message[n:]
	}
	return nil, false
}
