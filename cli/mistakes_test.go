package cli

import (
	"bytes"
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"proa.dev/cli/command"
	"proa.dev/test/ports"
)

// TestHelpOfEveryWord has every way to ask for help answered, that for help itself too.
func TestHelpOfEveryWord(t *testing.T) {
	for words, want := range map[string]string{
		"help help": "Usage: proa COMMAND", "--help --help": "Usage: proa COMMAND", "help -h": "Usage: proa COMMAND",
		"help down": "Usage: proa down", "down --help": "Usage: proa down", "help kubectl": "Usage: proa kubectl",
	} {
		var out bytes.Buffer
		err := runCommand(t.Context(), &command.Env{Out: &out, Err: &out}, strings.Fields(words))
		if err != nil || !strings.Contains(out.String(), want) {
			t.Errorf("proa %s: %v\n%s", words, err, out.String())
		}
	}
	if err := runCommand(t.Context(), &command.Env{}, []string{"help", "nothing"}); err == nil {
		t.Error("help about a command that does not exist")
	}
}

// TestFlagsOfACommandInAContainer: what follows -- is for the container, and is no reason to go on without a cluster.
func TestFlagsOfACommandInAContainer(t *testing.T) {
	for words, want := range map[string]bool{"exec p -- sh --help": false, "exec p -- sh -h": false, "get pods -h": true,
		"version --client": true} {
		if got := needsNoCluster(strings.Fields(words)); got != want {
			t.Errorf("kubectl %s needs no cluster: %v", words, got)
		}
	}
}

// TestTokenForAServerOnLoopback: a server that nodes cannot reach is values to be one.
func TestTokenForAServerOnLoopback(t *testing.T) {
	l, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", ports.Address(t))
	if err != nil {
		t.Fatal(err)
	}
	at := l.Addr().String()
	if why := unreachableAdvice(t.Context(), "https://127.0.0.1:1", "https://"+at); why != "" {
		t.Errorf("it listens there: %s", why)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if why := unreachableAdvice(t.Context(), "https://127.0.0.1:1", "https://"+at); !strings.Contains(why, "--listen 0.0.0.0:") {
		t.Errorf("nobody listens there: %q", why)
	}
}

// TestPurgeThroughALink: the data is gone, not only the link to it.
func TestPurgeThroughALink(t *testing.T) {
	dir := t.TempDir()
	folder, link := filepath.Join(dir, "folder"), filepath.Join(dir, "link")
	if err := errors.Join(os.MkdirAll(filepath.Join(folder, "pki"), 0o700), os.Symlink(folder, link)); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := runCommand(t.Context(), &command.Env{Out: &out, Err: &out}, []string{"down", "--purge", "--data-dir", link}); err != nil {
		t.Fatal(err)
	}
	if command.FileExists(folder) || command.FileExists(link) {
		t.Errorf("the data is still there, after: %s", out.String())
	}
}
