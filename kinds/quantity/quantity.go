// Package quantity bounds the texts that are read as quantities. The published parser computes with the whole number: "1e-300000000"
// takes it minutes, as does every later sum with "1e300000000", and a number of three million digits takes seconds. Anybody who may
// create a Pod could send one. Quantities that mean something are far shorter.
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
	// maxLength is how many characters a quantity may have.
	maxLength = 256
	// maxExponent is how many digits the exponent of a quantity may have, leading zeros not counted.
	maxExponent = 3
)

// Errors for quantities that would take too long to compute with.
var (
	ErrLong     = fmt.Errorf("a quantity has at most %d characters", maxLength)
	ErrExponent = fmt.Errorf("the exponent of a quantity has at most %d digits", maxExponent)
)

// Parse reads a quantity, if it is within the bounds.
func Parse(text string) (resource.Quantity, error) {
	if err := Check(text); err != nil {
		return resource.Quantity{}, err
	}
	return resource.ParseQuantity(text)
}

// Check returns an error for a text that the parser must not see. Whether other texts are quantities is for the parser to say.
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

// Harmful says that a text which may or may not be meant as a quantity would be read as one, and is out of bounds.
func Harmful(text string) bool {
	return Check(text) != nil && strings.Trim(strings.TrimSpace(text), "0123456789.+-eEinumkKMGTP") == ""
}

// HarmfulIn returns the first harmful text in a value that was decoded without a type, with its path; both are empty when there is none.
func HarmfulIn(value any) (path, text string) { return Find(value, Harmful) }

// Find returns the first text that is of a sort, with its path, in a value that was decoded without a type: a string, or a key of a map. Both are
// empty when there is none.
func Find(value any, is func(text string) bool) (path, text string) {
	switch v := value.(type) {
	case string:
		if is(v) {
			return "", v
		}
	case map[string]any:
		for key, of := range v {
			if is(key) {
				return key, key
			}
			if path, text := Find(of, is); text != "" {
				return join(key, path), text
			}
		}
	case []any:
		for i, of := range v {
			if path, text := Find(of, is); text != "" {
				return join("["+strconv.Itoa(i)+"]", path), text
			}
		}
	}
	return "", ""
}

// Suspicious says that data may hold a quantity out of bounds: more digits in a row than a quantity may have characters, or an
// exponent of too many digits. It is a quick look at every byte, so that ordinary data is not read twice.
func Suspicious(data []byte) bool {
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

// SuspiciousYAML returns YAML as JSON when it may hold a quantity out of bounds, and nil when it does not. Texts of YAML can be written
// with escapes, in base64 and in UTF-16.
func SuspiciousYAML(data []byte) []byte {
	if !Suspicious(data) && !bytes.ContainsAny(data, "\\!\x00") {
		return nil
	}
	text, err := yaml.YAMLToJSON(data)
	if err != nil {
		return nil // the decoder refuses it in its own words
	}
	return text
}
