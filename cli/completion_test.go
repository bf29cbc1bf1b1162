package cli

import (
	"bytes"
	"context"
	"flag"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"proa.dev/cli/command"
	"proa.dev/run/settings"
)

// runCommand runs the command that args name.
func runCommand(ctx context.Context, env *command.Env, args []string) error {
	return command.Run(ctx, env, commands(), args)
}

// out runs a command in the process and returns its output.
func out(t *testing.T, args ...string) string {
	t.Helper()
	var b bytes.Buffer
	if err := runCommand(t.Context(), &command.Env{In: strings.NewReader(""), Out: &b, Err: &b}, args); err != nil {
		t.Fatalf("proa %s: %v", strings.Join(args, " "), err)
	}
	return b.String()
}

// TestBashCompletion checks that bash completes commands, arguments and flags.
func TestBashCompletion(t *testing.T) {
	bash, err := exec.LookPath("bash")
	if err != nil {
		t.Skip("bash is not here")
	}
	script := out(t, "completion", "bash")
	for line, want := range map[string]string{
		"proa st":                   "status store",
		"proa token ":               "create delete list",
		"proa images re":            "remove",
		"proa logs --":              "--containerd --data-dir --f --tail",
		"proa server --etcd-":       "--etcd-cafile --etcd-certfile --etcd-keyfile --etcd-servers",
		"proa help comp":            "completion",
		"proa up --config /etc/pas": "/etc/passwd",
	} {
		words := strings.Split(line, " ")
		quoted := make([]string, len(words))
		for i, w := range words {
			quoted[i] = "'" + w + "'"
		}
		cmd := exec.CommandContext(t.Context(), bash, "-c", script+"\nCOMP_WORDS=("+strings.Join(quoted, " ")+"); COMP_CWORD=$((${#COMP_WORDS[@]}-1)); _proa; printf '%s\\n' \"${COMPREPLY[@]}\"")
		text, err := cmd.Output()
		got := strings.Fields(string(text))
		slices.Sort(got)
		got = slices.DeleteFunc(got, func(s string) bool { return strings.HasPrefix(s, "/etc/passwd-") })
		if err != nil || !slices.Equal(got, strings.Fields(want)) && !strings.HasPrefix(line, "proa token ") {
			t.Errorf("%q completes to %q (%v), want %q", line, got, err, want)
		}
		for _, w := range strings.Fields(want) {
			if !slices.Contains(got, w) {
				t.Errorf("%q does not complete to %s", line, w)
			}
		}
	}
}

// TestOtherCompletions checks that the other shells, if they are installed, parse their scripts without an error.
func TestOtherCompletions(t *testing.T) {
	for _, shell := range []string{"zsh", "fish"} {
		script := out(t, "completion", shell)
		for _, want := range []string{"images", "data-dir", "etcd-servers", "remove"} {
			if !strings.Contains(script, want) {
				t.Errorf("the script for %s does not have %q", shell, want)
			}
		}
		path, err := exec.LookPath(shell)
		if err != nil {
			continue
		}
		cmd := exec.CommandContext(t.Context(), path, "-n")
		cmd.Stdin = strings.NewReader(script)
		if text, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%s does not read its script: %v\n%s", shell, err, text)
		}
	}
}

// TestHelpAndManualNameEveryFlag checks that every flag of every command is in its help and in its manual page.
func TestHelpAndManualNameEveryFlag(t *testing.T) {
	roff := strings.NewReplacer("-", "\\-").Replace
	for _, c := range commands() {
		help, page := out(t, "help", c.Name), out(t, "man", c.Name)
		flags := flag.NewFlagSet(c.Name, flag.ContinueOnError)
		c.Setup(flags)
		flags.VisitAll(func(f *flag.Flag) {
			if !strings.Contains(help, "  --"+f.Name) || !strings.Contains(page, roff("--"+f.Name)) {
				t.Errorf("--%s of %s is not in its help or its manual page", f.Name, c.Name)
			}
		})
		if !strings.Contains(out(t, "man"), roff(c.Short)) || !strings.Contains(out(t, "help"), c.Short) {
			t.Errorf("%s is not in the overview", c.Name)
		}
	}
	if help := out(t, "help", "server"); !strings.Contains(help, "\nStorage:\n  --etcd-servers") ||
		strings.Contains(help, "\nFlags:\n  --admission") {
		t.Errorf("the help of the server has no groups:\n%s", help)
	}
}

// TestSampleConfig checks that the sample config file is valid, sets nothing, and names every setting.
func TestSampleConfig(t *testing.T) {
	text := out(t, "config")
	values, err := settings.ParseFile([]byte(text))
	if err != nil || len(values) > 0 {
		t.Errorf("it says %v, %v", values, err)
	}
	for _, s := range settings.All() {
		if !strings.Contains(text, "\n#"+s.Name+": ") {
			t.Errorf("%s is missing", s.Name)
		}
	}
	if _, err := settings.ParseFile([]byte(strings.ReplaceAll(text, "#listen: ADDR:PORT", "listen: 127.0.0.1:6443"))); err != nil {
		t.Errorf("with a setting: %v", err)
	}
}

func TestVersion(t *testing.T) {
	if a, b := out(t, "--version"), out(t, "version"); a != b || !strings.HasPrefix(a, "proa ") {
		t.Errorf("--version says %q, version says %q", a, b)
	}
	if text := out(t, "version", "-o", "json"); !strings.Contains(text, `"api": "v1.`) {
		t.Errorf("as JSON: %s", text)
	}
	v := version{Commit: "abc", Date: "2026-01-02T03:04:05Z", Modified: true}
	if got := v.commitLine(); got != "commit abc of 2026-01-02T03:04:05Z, with changes\n" {
		t.Errorf("the commit is %q", got)
	}
}
