package command

import (
	"flag"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestFlagsBeforeAndAfterArguments checks that flags are parsed before, between and after arguments.
func TestFlagsBeforeAndAfterArguments(t *testing.T) {
	for line, want := range map[string]string{
		"--name x create":              "create name=x",
		"create --name x":              "create name=x",
		"load --name=x a --loud b":     "load a b name=x loud",
		"load -name x -loud a":         "load a name=x loud",
		"--loud=false a":               "a",
		"a -- --name x":                "a --name x",
		"a --name -- b":                "a b name=--",
		"-- -":                         "-",
		"- --loud":                     "- loud",
		"a --name":                     "flag needs an argument: -name",
		"a --nome x":                   "flag provided but not defined: -nome",
		"a --help":                     "flag: help requested",
		"":                             "",
		"--name x --name y a --loud b": "a b name=y loud",
	} {
		fs := flag.NewFlagSet("", flag.ContinueOnError)
		fs.SetOutput(io.Discard)
		name, loud := fs.String("name", "", ""), fs.Bool("loud", false, "")
		words, err := parseFlags(fs, strings.Fields(line))
		if *name != "" {
			words = append(words, "name="+*name)
		}
		if *loud {
			words = append(words, "loud")
		}
		got := strings.Join(words, " ")
		if err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("%q is read as %q, want %q", line, got, want)
		}
	}
}

// TestRepeatedSignalIsIgnored checks that a signal that is sent twice within a moment does not kill a command that is about to
// report what is left: timeout(1) interrupts a command and then its process group.
func TestRepeatedSignalIsIgnored(t *testing.T) {
	ctx, stop := interruptible(t.Context())
	defer stop()
	for range 2 {
		if err := syscall.Kill(os.Getpid(), syscall.SIGINT); err != nil {
			t.Fatal(err)
		}
		<-ctx.Done()
		time.Sleep(repeatedSignal / 10) // a handler that is removed at the first signal would be removed by now
	}
	// The second signal may still arrive when stop has removed the handler.
	late := make(chan os.Signal, 1)
	signal.Notify(late, os.Interrupt)
	time.AfterFunc(5*time.Second, func() { signal.Stop(late) })
}
