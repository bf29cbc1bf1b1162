// Command tool is the one program of the image proa.test/tool: whatever a test
// wants a container to do, in one small static file that starts in milliseconds.
// Its first argument says what to do:
//
//	tool serve -port 8080           HTTP, with /ready and /live that can be switched
//	tool echo -tcp 7 -udp 7         answer with what came
//	tool exit -after 2s -code 3     end after a while
//	tool alloc -mem 64Mi            take memory, step by step
//	tool spin -cpu 1                use processor time
//	tool message -text done         leave a termination message
//	tool show                       print ids, capabilities, limits and environment
//	tool signals                    say which signals come
//	tool flaky -file /d/n -fail 2   fail the first starts
//	tool health -port 50051         answer gRPC health checks
//	tool fill -path /d -size 10Mi   use disk space
//	tool log -lines 10 -every 1s    write numbered lines
//	tool fork -count 10             start processes
//	tool get URL                    print the status and the body of an answer
//	tool load -rate 100 URL...      send requests, and count what fails
//	tool store -dir /data           keep values in files, by PUT and GET
//	tool send tcp ADDRESS TEXT      send a text and print what comes back
//	tool cat FILE...                print files
//	tool sleep                      wait for the end
//
// Whatever it does, it ends at once on SIGTERM and SIGINT, with the exit code 0,
// unless told to do otherwise.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
)

// exitCode is an error that asks for an exit code and says nothing.
type exitCode int

func (e exitCode) Error() string { return fmt.Sprintf("exit code %d", int(e)) }

// command is one thing that tool can do. It ends when the context does.
type command func(ctx context.Context, out io.Writer, args []string) error

func commands() map[string]command {
	return map[string]command{
		"serve":   serve,
		"echo":    echo,
		"exit":    exit,
		"alloc":   alloc,
		"spin":    spin,
		"message": message,
		"show":    show,
		"signals": signals,
		"flaky":   flaky,
		"health":  health,
		"fill":    fill,
		"log":     logLines,
		"fork":    fork,
		"get":     get,
		"load":    load,
		"store":   store,
		"send":    send,
		"cat":     cat,
		"sleep":   sleep,
	}
}

func main() {
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer cancel()
	err := run(ctx, os.Stdout, os.Args[1:])
	var code exitCode
	switch {
	case errors.As(err, &code):
		os.Exit(int(code))
	case errors.Is(err, flag.ErrHelp):
		os.Exit(2)
	case err != nil:
		fmt.Fprintln(os.Stderr, "tool:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, out io.Writer, args []string) error {
	if len(args) == 0 {
		return errors.New("say what to do: serve, echo, exit, alloc, spin, message, show, signals, flaky, health, fill, log, fork, get, load, store, send, cat or sleep")
	}
	do, ok := commands()[args[0]]
	if !ok {
		return fmt.Errorf("%q is nothing that this program can do", args[0])
	}
	return do(ctx, out, args[1:])
}

// flags makes a set of flags whose mistakes end the program with a message.
func flags(name string) *flag.FlagSet { return flag.NewFlagSet("tool "+name, flag.ContinueOnError) }

func sleep(ctx context.Context, _ io.Writer, _ []string) error {
	<-ctx.Done()
	return nil
}
