package nodereport

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// Text returns a text as it may stand in a record: one line of printable characters without credentials, of at most MaxText
// bytes. Errors of registries quote URLs, which may have a user with a password, or a signature in their query. Of a text that
// is too long the middle is left out: errors say at their end what is wrong.
func Text(s string) string {
	if short := truncate(s, 16*MaxText); len(short) < len(s) { // it bounds the work, too
		s = short[:strings.LastIndexByte(short, ' ')+1] // half a URL does not show what in it is a password
	}
	s = strings.Map(func(r rune) rune {
		if r == utf8.RuneError || !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, s)
	s = strings.TrimSpace(withoutCredentials(s))
	if len(s) <= MaxText {
		return s
	}
	end := len(s) - 2*MaxText/3
	for !utf8.RuneStart(s[end]) {
		end++
	}
	return truncate(s, MaxText-len("...")-(len(s)-end)) + "..." + s[end:]
}

// truncate returns the beginning of a text, at most n bytes, without half a character at its end.
func truncate(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}

// withoutCredentials removes users, passwords and queries of URLs, and what follows the words Bearer and Basic.
func withoutCredentials(s string) string {
	words := strings.Split(s, " ")
	for i, word := range words {
		if i > 0 && (strings.EqualFold(words[i-1], "bearer") || strings.EqualFold(words[i-1], "basic")) {
			words[i] = "..."
			continue
		}
		words[i] = redactURLs(word)
	}
	return strings.Join(words, " ")
}

// redactURLs removes the user and the query of each URL in a word.
func redactURLs(word string) string {
	const scheme = "://"
	var out strings.Builder
	for {
		before, rest, found := strings.Cut(word, scheme)
		out.WriteString(before)
		if !found {
			return out.String()
		}
		out.WriteString(scheme)
		end := strings.IndexAny(rest, `"'<>()\`)
		if end < 0 {
			end = len(rest)
		}
		url, query, hasQuery := strings.Cut(rest[:end], "?")
		if strings.Contains(query, "@") {
			url = "..." // the question mark may be a part of the password
		}
		if at := strings.LastIndex(url, "@"); at >= 0 && !strings.HasPrefix(url[at:], "@sha256:") {
			url = url[at+1:]
		} else if user, _, _ := strings.Cut(url, "/"); strings.Contains(user, "@") {
			url = url[strings.Index(url, "@")+1:]
		}
		out.WriteString(url)
		if hasQuery {
			out.WriteString("?...")
		}
		word = rest[end:]
	}
}
