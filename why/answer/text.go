package answer

import (
	"fmt"
	"strings"
	"time"
	"unicode/utf8"
)

// Ago says how long something has been so.
func Ago(now, t time.Time) string {
	d := now.Sub(t)
	switch {
	case t.IsZero():
		return "some time"
	case d < time.Second:
		return "less than a second"
	case d < 2*time.Minute:
		return Plural(int(d.Seconds()), "second")
	case d < 2*time.Hour:
		return Plural(int(d.Minutes()), "minute")
	case d < 48*time.Hour:
		return Plural(int(d.Hours()), "hour")
	}
	return Plural(int(d.Hours()/24), "day")
}

// Plural returns a number with a noun, in the plural unless the number is 1.
func Plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	if strings.HasSuffix(what, "s") {
		what += "e"
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// maxMessage bounds how much of a message of somebody else an answer repeats, in bytes.
const maxMessage = 1000

// Sentence makes a message of somebody else fit for the inside of a sentence: without a full stop at its end, on one line.
func Sentence(text string) string {
	return strings.TrimRight(OneLine(text), ". ")
}

// OneLine makes white space of any kind a blank, and cuts a text that is too long.
func OneLine(text string) string {
	return strings.Join(strings.Fields(Shorten(text)), " ")
}

// Shorten cuts a text that is too long, at the beginning of a character.
func Shorten(text string) string {
	if len(text) <= maxMessage {
		return text
	}
	end := maxMessage
	for end > 0 && !utf8.RuneStart(text[end]) {
		end--
	}
	return fmt.Sprintf("%s … (%d bytes in all)", text[:end], len(text))
}

// InNamespace returns the flag of kubectl that names a namespace.
func InNamespace(namespace string) string {
	if namespace == "" {
		return ""
	}
	return " -n " + namespace
}

// Lower makes a sentence fit behind a colon. Names of kinds keep their capitals.
func Lower(s string) string {
	for _, article := range []string{"The ", "A ", "An ", "It ", "Its ", "No ", "Nobody ", "Nothing ", "Not "} {
		if strings.HasPrefix(s, article) {
			return strings.ToLower(article) + strings.TrimPrefix(s, article)
		}
	}
	return s
}
