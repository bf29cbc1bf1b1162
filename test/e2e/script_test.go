package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// script is a run of one script file. The lines before the first "-- name --" are commands, the rest are files that are written into
// the work folder first. The commands:
//
//	kubectl ARGS, proa ARGS, sh 'LINE'   run it; the test fails if it fails
//	! COMMAND                            run it; it must fail
//	code N COMMAND                       run it; it must end with exit code N
//	eventually COMMAND                   run it until it succeeds (a failing "stdout" after it is tried again too)
//	stdout REGEX, stderr REGEX           the last command printed this; "! stdout REGEX" that it did not
//	stdin FILE                           the next command reads FILE
//	env NAME=VALUE                       set a variable; $NAME is replaced everywhere
//	kill FILE                            kill the process whose ID FILE begins with, and wait until it has ended
//	COMMAND &                            run it in the background
//	output REGEX                         wait until it has printed this; named groups become variables
//	wait                                 wait for it; stdout is then what it printed
//	stop                                 interrupt it instead
//	[kubectl] LINE, [kubectl-old] LINE   only with that kubectl
type script struct {
	t     *testing.T
	path  string
	work  string
	bins  programs
	env   map[string]string
	flags map[string]bool

	stdin          string
	stdout, stderr string
	again          []string // the last "eventually", for the checks after it
	back           *background
}

type background struct {
	cmd         *exec.Cmd
	out, errOut buffer
}

// buffer can be read while a program writes to it. mu guards all.
type buffer struct {
	mu  sync.Mutex
	all bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.all.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.all.String()
}

// waitLimit is how long a script waits for anything. It is no assertion about speed: the test must pass on a slow machine.
const waitLimit = 90 * time.Second

func newScript(t *testing.T, path string, bins programs) *script {
	work := t.TempDir()
	return &script{t: t, path: path, work: work, bins: bins, flags: map[string]bool{}, env: map[string]string{
		"WORK": work, "HOME": work, "TERM": "dumb", "PATH": os.Getenv("PATH"),
		// Reading a large table of English texts is a third of the processor time of a kubectl. The French table has six lines of the
		// help; all other texts are the English ones of the code.
		"LANG": "fr_FR.UTF-8",
	}}
}

func (s *script) setenv(name, value string) { s.env[name] = value }

func (s *script) expand(text string) string {
	return os.Expand(text, func(name string) string {
		if v, ok := s.env[name]; ok {
			return v
		}
		return "$" + name // for the shell, or the end of a regular expression
	})
}

func (s *script) run() {
	data, err := os.ReadFile(s.path)
	if err != nil {
		s.t.Fatal(err)
	}
	commands := s.unpack(string(data))
	for i, line := range strings.Split(commands, "\n") {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		if err := s.step(line); err != nil {
			s.t.Fatalf("%s:%d: %s\n%v\nstdout:\n%s\nstderr:\n%s", s.path, i+1, line, err, s.stdout, s.stderr)
		}
	}
	if s.back != nil {
		s.t.Fatalf("%s: a background command was neither waited for nor stopped", s.path)
	}
}

// unpack writes the files of the script and returns its commands.
func (s *script) unpack(text string) string {
	marker := regexp.MustCompile(`(?m)^-- (\S+) --\n`)
	at := marker.FindAllStringSubmatchIndex(text, -1)
	if len(at) == 0 {
		return text
	}
	for i, m := range at {
		end := len(text)
		if i+1 < len(at) {
			end = at[i+1][0]
		}
		name := filepath.Join(s.work, text[m[2]:m[3]])
		mode := os.FileMode(0o600)
		if strings.HasSuffix(name, ".sh") {
			mode = 0o700
		}
		body := text[m[1]:end]
		if mode == 0o600 {
			body = s.expand(body)
		}
		if err := os.WriteFile(name, []byte(body), mode); err != nil {
			s.t.Fatal(err)
		}
	}
	return text[:at[0][0]]
}

func (s *script) step(line string) error {
	for strings.HasPrefix(line, "[") {
		flag, rest, _ := strings.Cut(line[1:], "]")
		if !s.flags[flag] {
			return nil
		}
		line = strings.TrimSpace(rest)
	}
	line, negate := strings.CutPrefix(line, "! ")
	words, err := split(s.expand(line))
	if err != nil {
		return err
	}
	switch words[0] {
	case "stdout", "stderr":
		return s.match(words, negate)
	case "stdin":
		s.stdin = filepath.Join(s.work, words[1])
		return nil
	case "env":
		name, value, _ := strings.Cut(words[1], "=")
		s.setenv(name, value)
		return nil
	case "kill":
		return s.kill(words[1])
	case "output":
		re, err := regexp.Compile("(?m)" + words[1])
		if err != nil || s.back == nil {
			return fmt.Errorf("no command is in the background, or a bad expression: %w", err)
		}
		return s.until(func() error {
			s.stdout = s.back.out.String()
			found := re.FindStringSubmatch(s.stdout)
			if found == nil {
				return fmt.Errorf("the background command has not printed it")
			}
			for i, name := range re.SubexpNames() {
				if name != "" {
					s.setenv(name, found[i])
				}
			}
			return nil
		})
	case "wait", "stop":
		return s.end(words[0] == "stop")
	case "eventually":
		s.again = words[1:]
		return s.until(func() error { return s.exec(words[1:], false) })
	}
	s.again = nil
	if words[len(words)-1] == "&" {
		return s.begin(words[:len(words)-1])
	}
	return s.exec(words, negate)
}

// kill ends a process with SIGKILL, and waits until its last thread has ended: until then its ports and its lock are taken. The file
// begins with the ID of the process.
func (s *script) kill(file string) error {
	if !filepath.IsAbs(file) {
		file = filepath.Join(s.work, file)
	}
	data, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	line, _, _ := strings.Cut(string(data), "\n")
	pid, err := strconv.Atoi(strings.TrimSpace(line))
	if err != nil {
		return err
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		return err
	}
	return s.until(func() error {
		threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*", pid))
		if err != nil {
			return err
		}
		if state(pid) != "" || len(threads) > 1 { // of a process that nobody waits for, the first thread stays
			return fmt.Errorf("process %d has not ended", pid)
		}
		return nil
	})
}

// match checks what the last command printed. After "eventually" it runs that command again until it fits.
func (s *script) match(words []string, negate bool) error {
	if len(words) != 2 {
		return fmt.Errorf("%s takes one expression", words[0])
	}
	re, err := regexp.Compile("(?m)" + words[1])
	if err != nil {
		return err
	}
	check := func() error {
		text := s.stdout
		if words[0] == "stderr" {
			text = s.stderr
		}
		if re.MatchString(text) == negate {
			return fmt.Errorf("%s is not as expected", words[0])
		}
		return nil
	}
	if s.again == nil || check() == nil {
		return check()
	}
	return s.until(func() error {
		if err := s.exec(s.again, false); err != nil {
			return err
		}
		return check()
	})
}

func (s *script) until(try func() error) error {
	deadline := time.Now().Add(waitLimit)
	for {
		err := try()
		if err == nil || time.Now().After(deadline) {
			return err
		}
		select {
		case <-s.t.Context().Done():
			return s.t.Context().Err()
		case <-time.After(200 * time.Millisecond):
		}
	}
}

func (s *script) command(ctx context.Context, words ...string) *exec.Cmd {
	bin, ok := s.bins[words[0]]
	args := words[1:]
	if !ok {
		bin, args = "/bin/sh", append([]string{"-euc"}, args...)
	}
	cmd := exec.CommandContext(ctx, bin, args...)
	cmd.Dir = s.work
	for k, v := range s.env {
		cmd.Env = append(cmd.Env, k+"="+v)
	}
	if words[0] == "kubectl" || words[0] == "helm" {
		// They run thousands of times and end at once: collecting garbage would be a quarter of their processor time.
		cmd.Env = append(cmd.Env, "GOGC=400")
	}
	return cmd
}

func (s *script) exec(words []string, mustFail bool) error {
	if words[0] == "code" && len(words) > 2 {
		return s.expectCode(words[1], words[2:])
	}
	if _, ok := s.bins[words[0]]; !ok && words[0] != "sh" {
		return fmt.Errorf("unknown word %q", words[0])
	}
	ctx, cancel := context.WithTimeout(s.t.Context(), waitLimit)
	defer cancel()
	cmd := s.command(ctx, words...)
	if s.stdin != "" {
		f, err := os.Open(s.stdin)
		if err != nil {
			return err
		}
		defer f.Close()
		cmd.Stdin, s.stdin = f, ""
	}
	var out, errOut bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errOut
	err := cmd.Run()
	s.stdout, s.stderr = out.String(), errOut.String()
	switch {
	case mustFail && err == nil:
		return fmt.Errorf("it succeeded, but must fail")
	case mustFail:
		return nil
	}
	return err
}

// expectCode runs a command that must end with a given exit code.
func (s *script) expectCode(code string, words []string) error {
	got := "0"
	err := s.exec(words, false)
	if ended := (*exec.ExitError)(nil); errors.As(err, &ended) {
		got = strconv.Itoa(ended.ExitCode())
	} else if err != nil {
		return err
	}
	if got != code {
		return fmt.Errorf("it ended with exit code %s, not %s", got, code)
	}
	return nil
}

func (s *script) must(words ...string) {
	s.t.Helper()
	if err := s.exec(words, false); err != nil {
		s.t.Fatalf("%v: %v\n%s%s", words, err, s.stdout, s.stderr)
	}
}

func (s *script) begin(words []string) error {
	if s.back != nil {
		return fmt.Errorf("a command is in the background already")
	}
	s.back = &background{cmd: s.command(s.t.Context(), words...)}
	s.back.cmd.Stdout, s.back.cmd.Stderr = &s.back.out, &s.back.errOut
	return s.back.cmd.Start()
}

func (s *script) end(interrupt bool) error {
	if s.back == nil {
		return fmt.Errorf("no command is in the background")
	}
	b := s.back
	s.back = nil
	if interrupt {
		if err := b.cmd.Process.Signal(os.Interrupt); err != nil {
			return err
		}
	}
	err := b.cmd.Wait()
	s.stdout, s.stderr = b.out.String(), b.errOut.String()
	if interrupt {
		return nil // the exit code of an interrupted program is ignored
	}
	return err
}

// split cuts a line at spaces, except inside single quotes.
func split(line string) ([]string, error) {
	var words []string
	var word strings.Builder
	quoted, some := false, false
	for _, r := range line {
		switch {
		case r == '\'':
			quoted, some = !quoted, true
		case !quoted && (r == ' ' || r == '\t'):
			if some {
				words = append(words, word.String())
			}
			word.Reset()
			some = false
		default:
			word.WriteRune(r)
			some = true
		}
	}
	if quoted {
		return nil, fmt.Errorf("a quote is not closed")
	}
	if some {
		words = append(words, word.String())
	}
	return words, nil
}
