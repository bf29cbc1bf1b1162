// Command cmd builds the parts of a node and puts them into a folder:
//
//	go run ./parts/cmd -o bin
//
// A part that this machine can neither build nor find is named, and left out: proa runs without it, but a node does not.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"proa.dev/parts"
)

func main() {
	folder := flag.String("o", "bin", "folder for the programs")
	flag.Parse()
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer cancel()
	if err := run(ctx, *folder); err != nil {
		fmt.Fprintln(os.Stderr, "parts:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, folder string) error {
	for _, name := range parts.Names() {
		from, err := parts.Build(ctx, os.Stderr, name)
		if errors.Is(err, parts.ErrMissing) {
			fmt.Fprintf(os.Stderr, "NOTICE: %v\n", err)
			continue
		}
		if err != nil {
			return err
		}
		if err := parts.Install(from, folder); err != nil {
			return fmt.Errorf("install %s: %w", name, err)
		}
	}
	return nil
}
