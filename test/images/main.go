// Command images builds the images that tests run and prints the paths of the
// archives that hold them, one a line, so that scripts can load them:
//
//	go run ./test/images busybox tool
//
// Without names it builds all. What is built stays in the cache folder of the
// user; a second run takes a second. Instead of printing paths it can
//
//	-list    print the names of the images
//	-serve   serve the images from a registry until it is interrupted; with
//	         -mirror DIR, the certs.d folder of containerd is told to ask it
//	-lock    ask apt which Debian packages are current, and write them down
//	         for all later runs
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"proa.dev/test/images/build"
	"proa.dev/test/registry"
	"proa.dev/test/upstream"
)

type options struct {
	lock, list    bool
	serve, mirror string
	names         []string
}

func main() {
	var o options
	flag.BoolVar(&o.list, "list", false, "print the names of the images instead")
	flag.StringVar(&o.serve, "serve", "", "serve the images from a registry at this `address` instead, as 127.0.0.1:5000")
	flag.StringVar(&o.mirror, "mirror", "", "with -serve, the certs.d `folder` of the containerd that shall use it")
	flag.BoolVar(&o.lock, "lock", false, "write down the current Debian packages instead")
	flag.Parse()
	o.names = flag.Args()
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer cancel()
	if err := run(ctx, o); err != nil {
		fmt.Fprintln(os.Stderr, "images:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, o options) error {
	switch {
	case o.mirror != "" && o.serve == "":
		return errors.New("-mirror needs -serve")
	case o.list:
		printAll(build.Names())
		return nil
	case o.lock:
		root, err := upstream.Root()
		if err != nil {
			return err
		}
		return build.Lock(ctx, root)
	}
	archives, err := build.Archives(ctx, o.names...)
	if err != nil {
		return err
	}
	if o.serve == "" {
		printAll(archives)
		return nil
	}
	return serve(ctx, o, archives)
}

func printAll(lines []string) {
	for _, line := range lines {
		fmt.Println(line)
	}
}

func serve(ctx context.Context, o options, archives []string) error {
	r, err := registry.Start(ctx, registry.Options{Archives: archives, Listen: o.serve})
	if err != nil {
		return err
	}
	if o.mirror != "" {
		for _, host := range []string{"registry.k8s.io", "proa.test"} {
			if err := r.Mirror(o.mirror, host); err != nil {
				return errors.Join(err, r.Close())
			}
		}
	}
	fmt.Println(r.URL())
	<-ctx.Done()
	return r.Close()
}
