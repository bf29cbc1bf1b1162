// Command proa-cni is the CNI plugin that the container runtime starts to connect a Pod to the network. It calls the
// node's agent, which does the work; package network/cni says why.
package main

import (
	"os"

	"proa.dev/network/cni"
)

func main() { os.Exit(cni.Main(os.Getenv, os.Stdin, os.Stdout)) }
