// Command images builds the images that tests run and prints the paths of the
// archives that hold them, one a line, so that scripts can load them:
//
//	go run ./test/images busybox tool
//
// Without names it builds all. What is built stays in the cache folder of the
// user; a second run takes a second. With -lock it instead asks apt which
// Debian packages are current, and writes them down for all later runs. With
// -list it prints the names.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"proa.dev/test/images/build"
	"proa.dev/test/upstream"
)

func main() {
	lock := flag.Bool("lock", false, "write down the current Debian packages instead")
	list := flag.Bool("list", false, "print the names of the images instead")
	flag.Parse()
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer cancel()
	lines, err := run(ctx, *lock, *list)
	for _, line := range lines {
		fmt.Println(line)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "images:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, lock, list bool) ([]string, error) {
	switch {
	case list:
		return build.Names(), nil
	case lock:
		root, err := upstream.Root()
		if err != nil {
			return nil, err
		}
		return nil, build.Lock(ctx, root)
	}
	return build.Archives(ctx, flag.Args()...)
}
