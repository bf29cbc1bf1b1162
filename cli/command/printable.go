package command

import "proa.dev/internal/printable"

// Printable escapes control characters, and those that change the direction of text, in a text of another origin, so
// that it cannot manipulate the terminal.
func Printable(text string) string { return printable.Text(text) }
