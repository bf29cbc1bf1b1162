package command

import (
	"encoding/json"
	"flag"
	"fmt"
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

// WriteJSON writes a value as indented JSON.
func WriteJSON(w interface{ Write([]byte) (int, error) }, v any) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(v)
}

// Count returns a number with its noun, in the plural if needed.
func Count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
