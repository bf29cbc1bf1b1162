package command

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"unicode"
	"unicode/utf16"
)

// OutputFlag declares -o.
func OutputFlag(fs *flag.FlagSet) func() (string, error) {
	format := fs.String("o", "", "`FORMAT` of the output: json, or empty for people")
	return func() (string, error) {
		if *format != "" && *format != "json" {
			return "", fmt.Errorf("-o takes json and no other format, but got %q", *format)
		}
		return *format, nil
	}
}

// NoArguments refuses arguments of a command that takes only flags.
func NoArguments(name string, args []string) error {
	if len(args) > 0 {
		return fmt.Errorf("%s takes no arguments, but got %q; flags begin with --", name, args[0])
	}
	return nil
}

// WriteJSON writes a value as indented JSON that cannot manipulate a terminal.
func WriteJSON(w interface{ Write([]byte) (int, error) }, v any) error {
	var out bytes.Buffer
	e := json.NewEncoder(&out)
	e.SetIndent("", "  ")
	if err := e.Encode(v); err != nil {
		return err
	}
	_, err := w.Write(PrintableJSON(out.Bytes()))
	return err
}

// PrintableJSON escapes in a JSON document what Printable escapes in a text: encoding/json leaves the control characters from U+007F on,
// and those that change the direction of text, as they are. The document means the same.
func PrintableJSON(data []byte) []byte {
	var out bytes.Buffer
	for _, r := range string(data) {
		switch {
		case r < 0x7f || unicode.IsPrint(r): // control characters below are white space between values; inside of strings they are escaped
			out.WriteRune(r)
		case r <= 0xffff:
			fmt.Fprintf(&out, `\u%04x`, r)
		default:
			high, low := utf16.EncodeRune(r)
			fmt.Fprintf(&out, `\u%04x\u%04x`, high, low)
		}
	}
	return out.Bytes()
}

// Count returns a number with its noun, in the plural if needed.
func Count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
