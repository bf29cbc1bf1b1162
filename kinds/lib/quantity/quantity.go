// Package quantity bounds the texts that are parsed as quantities. The published parser computes with the whole number: "1e-300000000"
// takes it minutes, as does every later sum with "1e300000000", and a number of three million digits takes seconds. Anybody who may
// create a Pod could send one. Useful quantities are far shorter.
package quantity

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/yaml"
)

const (
	// maxLength bounds the characters of a quantity.
	maxLength = 256
	// maxExponent bounds the digits of the exponent of a quantity, leading zeros not counted.
	maxExponent = 3
)

// Errors for quantities that would take too long to compute with.
var (
	ErrLong     = fmt.Errorf("a quantity has at most %d characters", maxLength)
	ErrExponent = fmt.Errorf("the exponent of a quantity has at most %d digits", maxExponent)
)

// Parse parses a quantity that is within the bounds.
func Parse(text string) (resource.Quantity, error) {
	if err := Check(text); err != nil {
		return resource.Quantity{}, err
	}
	return resource.ParseQuantity(text)
}

// Check returns an error for a text that is out of bounds, which the parser must not see. It does not check whether the text is a quantity.
func Check(text string) error {
	if len(text) > maxLength {
		return ErrLong
	}
	at := strings.IndexAny(text, "eE")
	if at < 0 {
		return nil
	}
	exponent := strings.TrimLeft(strings.TrimLeft(text[at+1:], "+-"), "0")
	digits := len(exponent) - len(strings.TrimLeft(exponent, "0123456789"))
	if digits > maxExponent {
		return ErrExponent
	}
	return nil
}

// IsHarmful reports whether the parser would accept a text as a quantity, whatever it is meant to be, and the text is out of bounds.
func IsHarmful(text string) bool {
	return Check(text) != nil && strings.Trim(strings.TrimSpace(text), "0123456789.+-eEinumkKMGTP") == ""
}

// FindHarmful returns the first harmful text in a value that was decoded without a type, and its path; both are empty when there is none.
func FindHarmful(value any) (path, text string) { return Find(value, IsHarmful) }

// Find returns the first text, a string or the key of a map, that matches in a value which was decoded without a type,
// and its path. Both are empty when none does.
func Find(value any, matches func(text string) bool) (path, text string) {
	switch v := value.(type) {
	case string:
		if matches(v) {
			return "", v
		}
	case map[string]any:
		for key, of := range v {
			if matches(key) {
				return key, key
			}
			if path, text := Find(of, matches); text != "" {
				return join(key, path), text
			}
		}
	case []any:
		for i, of := range v {
			if path, text := Find(of, matches); text != "" {
				return join("["+strconv.Itoa(i)+"]", path), text
			}
		}
	}
	return "", ""
}

// IsSuspicious reports whether data may hold a quantity out of bounds: a long row of digits, or an exponent of too many
// digits. It is one quick pass over the bytes, so that ordinary data is not parsed twice.
func IsSuspicious(data []byte) bool {
	digits, exponent := 0, false
	for _, c := range data {
		switch {
		case c >= '0' && c <= '9':
			if digits++; digits > maxExponent && exponent || digits > maxLength/2 {
				return true
			}
			continue
		case c == '.':
			continue
		case c == 'e' || c == 'E':
			exponent = true // also without a digit before it: "e300000000" is a zero
		case (c == '+' || c == '-') && exponent && digits == 0:
			continue
		default:
			exponent = false
		}
		digits = 0
	}
	return false
}

// ToJSONIfSuspicious returns YAML as JSON when it may hold a quantity out of bounds, and nil when it does not. Texts of YAML can be written
// with escapes, in base64 and in UTF-16.
func ToJSONIfSuspicious(data []byte) []byte {
	if !IsSuspicious(data) && !bytes.ContainsAny(data, "\\!\x00") {
		return nil
	}
	text, err := yaml.YAMLToJSON(data)
	if err != nil {
		return nil // the decoder returns the error
	}
	return text
}
