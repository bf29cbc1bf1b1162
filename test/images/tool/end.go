package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// wait is whether a while passed before the program was told to end.
func wait(ctx context.Context, d time.Duration) bool {
	if ctx.Err() != nil {
		return false
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

func exit(ctx context.Context, _ io.Writer, args []string) error {
	f := flags("exit")
	after := f.Duration("after", 0, "how long to wait")
	code := f.Int("code", 0, "the exit code")
	if err := f.Parse(args); err != nil {
		return err
	}
	if !wait(ctx, *after) {
		return nil
	}
	return exitCode(*code)
}

// message leaves a termination message, where the kubelet looks for it.
func message(ctx context.Context, out io.Writer, args []string) error {
	f := flags("message")
	path := f.String("path", "/dev/termination-log", "the file to write")
	text := f.String("text", "", "what to write")
	repeat := f.Int("repeat", 1, "how often to write it")
	printed := f.String("print", "", "what to print, for messages that are taken from the log")
	code := f.Int("code", 0, "the exit code")
	if err := f.Parse(args); err != nil {
		return err
	}
	if *text != "" {
		if err := os.WriteFile(*path, []byte(strings.Repeat(*text, *repeat)), 0o644); err != nil {
			return err
		}
	}
	if *printed != "" {
		fmt.Fprintln(out, *printed)
	}
	return exitCode(*code)
}

// flaky counts its starts in a file, and fails the first of them.
func flaky(ctx context.Context, out io.Writer, args []string) error {
	f := flags("flaky")
	path := f.String("file", "/data/starts", "the file that counts; on a volume, it outlives the container")
	fail := f.Int("fail", 1, "how many starts fail")
	code := f.Int("code", 1, "the exit code of a start that fails")
	done := f.Bool("done", false, "end with 0 after the starts that fail, instead of staying")
	if err := f.Parse(args); err != nil {
		return err
	}
	n, err := count(*path)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "start %d\n", n)
	if n <= *fail {
		return exitCode(*code)
	}
	if !*done {
		<-ctx.Done()
	}
	return nil
}

// count adds one to the number in a file.
func count(path string) (int, error) {
	data, err := os.ReadFile(path)
	if err != nil && !os.IsNotExist(err) {
		return 0, err
	}
	n, err := strconv.Atoi(strings.TrimSpace("0" + string(data)))
	if err != nil {
		return 0, fmt.Errorf("%s does not hold a number: %w", path, err)
	}
	return n + 1, os.WriteFile(path, []byte(strconv.Itoa(n+1)+"\n"), 0o644)
}

// signals says which signals come. SIGTERM and SIGINT end it, after a while if
// so wished, unless it is told to ignore them.
func signals(_ context.Context, out io.Writer, args []string) error {
	f := flags("signals")
	ignore := f.Bool("ignore", false, "do not end on SIGTERM and SIGINT, so that only SIGKILL helps")
	linger := f.Duration("linger", 0, "how long to stay after SIGTERM")
	code := f.Int("code", 0, "the exit code after SIGTERM")
	if err := f.Parse(args); err != nil {
		return err
	}
	came := make(chan os.Signal, 16)
	signal.Notify(came)
	defer signal.Stop(came)
	fmt.Fprintln(out, "waiting for signals")
	for s := range came {
		if s == syscall.SIGURG {
			continue // the Go runtime sends it to itself
		}
		fmt.Fprintf(out, "signal %d %s\n", s, name(s))
		if (s == syscall.SIGTERM || s == syscall.SIGINT) && !*ignore {
			time.Sleep(*linger)
			return exitCode(*code)
		}
	}
	return nil
}

// name is a signal as kill -l writes it.
func name(s os.Signal) string {
	names := map[os.Signal]string{
		syscall.SIGHUP: "HUP", syscall.SIGINT: "INT", syscall.SIGQUIT: "QUIT", syscall.SIGTERM: "TERM", syscall.SIGUSR1: "USR1",
		syscall.SIGUSR2: "USR2", syscall.SIGWINCH: "WINCH", syscall.SIGCHLD: "CHLD", syscall.SIGPIPE: "PIPE", syscall.SIGALRM: "ALRM",
		syscall.SIGCONT: "CONT", syscall.SIGTSTP: "TSTP",
	}
	if n := names[s]; n != "" {
		return n
	}
	return s.String()
}
