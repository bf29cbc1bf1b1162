// Command proa is a Kubernetes-compatible system in one binary.
package main

import (
	"os"

	"proa.dev/cli"
)

func main() { os.Exit(cli.Main(os.Args)) }
