// Command cmd builds the parts of a node and puts them into a folder:
//
//	go run ./parts/cmd -o bin
//
// A part that this machine can neither build nor find is named, and left out: proa runs without it, but a node does not. For a
// release it packs programs into one file, which proa carries:
//
//	go run ./parts/cmd -pack parts/bundle/parts.bin bin/containerd bin/runc ...
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
	"proa.dev/parts/bundle"
)

func main() {
	folder := flag.String("o", "bin", "folder for the programs")
	pack := flag.String("pack", "", "pack the programs that are named into this file instead")
	flag.Parse()
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer cancel()
	err := error(nil)
	if *pack != "" {
		err = packAll(*pack, flag.Args())
	} else {
		err = run(ctx, *folder)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "parts:", err)
		os.Exit(1)
	}
}

// packAll writes programs into one file, atomically.
func packAll(file string, programs []string) error {
	if len(programs) == 0 {
		return errors.New("say which programs to pack")
	}
	out, err := os.Create(file + ".partial")
	if err != nil {
		return err
	}
	defer os.Remove(out.Name())
	if err := errors.Join(bundle.Pack(out, programs...), out.Close()); err != nil {
		return err
	}
	return os.Rename(out.Name(), file)
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
