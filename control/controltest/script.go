package controltest

import "strings"

// step is one command with the comments before it and the body after it.
type step struct {
	comments string
	command  string
	body     string
}

func (s step) name() string {
	name, _, _ := strings.Cut(s.command, " ")
	return name
}

func (s step) args() []string { return strings.Fields(s.command)[1:] }

// parse splits a script into steps.
func parse(text string) (steps []step) {
	var comments, body strings.Builder
	var cur *step
	flush := func() {
		if cur != nil {
			cur.body = body.String()
			steps = append(steps, *cur)
		}
		body.Reset()
	}
	for line := range strings.Lines(text) {
		switch {
		case strings.HasPrefix(line, "$ "):
			flush()
			cur = &step{comments: comments.String(), command: strings.TrimSpace(line[2:])}
			comments.Reset()
		case strings.HasPrefix(line, "# ") || strings.TrimSpace(line) == "" && cur == nil:
			comments.WriteString(line)
		default:
			body.WriteString(line)
		}
	}
	flush()
	return steps
}

// render returns the step as it is written in a script, with a body.
func (s step) render(body string) string {
	if body != "" && !strings.HasSuffix(body, "\n") {
		body += "\n"
	}
	return s.comments + "$ " + s.command + "\n" + body
}
