// Command proa-cni is what a container runtime starts to put a Pod on the network. It asks the node's agent, which does
// the work; package network/cni says why.
package main

import (
	"os"

	"proa.dev/network/cni"
)

func main() { os.Exit(cni.Main(os.Getenv, os.Stdin, os.Stdout)) }
