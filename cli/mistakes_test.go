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

// TestHelpCommands checks every way to ask for help, including help about help.
func TestHelpCommands(t *testing.T) {
	for args, want := range map[string]string{
		"help help": "Usage: proa COMMAND", "--help --help": "Usage: proa COMMAND", "help -h": "Usage: proa COMMAND",
		"help down": "Usage: proa down", "down --help": "Usage: proa down", "help kubectl": "Usage: proa kubectl",
	} {
		var out bytes.Buffer
		err := runCommand(t.Context(), &command.Env{Out: &out, Err: &out}, strings.Fields(args))
		if err != nil || !strings.Contains(out.String(), want) {
			t.Errorf("proa %s: %v\n%s", args, err, out.String())
		}
	}
	if err := runCommand(t.Context(), &command.Env{}, []string{"help", "nothing"}); err == nil {
		t.Error("help about a command that does not exist")
	}
}

// TestHelpFlagAfterDashesIsForContainer checks that "proa kubectl" needs a cluster if --help comes after "--", where it is an
// argument of the command in a container.
func TestHelpFlagAfterDashesIsForContainer(t *testing.T) {
	for args, want := range map[string]bool{"exec p -- sh --help": false, "exec p -- sh -h": false, "get pods -h": true,
		"version --client": true} {
		if got := needsNoCluster(strings.Fields(args)); got != want {
			t.Errorf("kubectl %s needs no cluster: %v", args, got)
		}
	}
}

// TestUnreachableAdvice checks that there is advice about --listen if the server does not listen at an address that nodes reach.
func TestUnreachableAdvice(t *testing.T) {
	l, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", ports.Address(t))
	if err != nil {
		t.Fatal(err)
	}
	at := l.Addr().String()
	if advice := unreachableAdvice(t.Context(), "https://127.0.0.1:1", "https://"+at); advice != "" {
		t.Errorf("it listens there: %s", advice)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if advice := unreachableAdvice(t.Context(), "https://127.0.0.1:1", "https://"+at); !strings.Contains(advice, "--listen 0.0.0.0:") {
		t.Errorf("nothing listens there: %q", advice)
	}
}

// TestPurgeFollowsSymlink checks that "down --purge" removes the data folder behind a symbolic link, and the link.
func TestPurgeFollowsSymlink(t *testing.T) {
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
