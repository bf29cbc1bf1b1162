// Command cmd runs suites of others, as they are, on proa, and writes what came of it into the documentation:
//
//	go run ./test/operators/cmd controller-runtime
//
// runs the tests of controller-runtime that start a control plane by envtest, in the version that examples/operator
// uses. The module is copied out of the module cache and not changed; KUBEBUILDER_ASSETS names a folder in which proa
// has the names of kube-apiserver and etcd (proatest/assets). Names of packages below its folder pkg, such as client or
// internal/controller, choose some, and then nothing is written.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	docs := flag.String("docs", "docs/conformance.md", "write the results into this file, or nowhere if it is empty")
	flag.Parse()
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer cancel()
	err := fmt.Errorf("say which suite to run: controller-runtime")
	if flag.Arg(0) == suiteName {
		err = runSuite(ctx, *docs, flag.Args()[1:])
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "operators:", err)
		os.Exit(1)
	}
}
