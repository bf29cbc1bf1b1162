package command

import (
	"path/filepath"
	"strings"
)

// pluginCommand returns the command that the name of the program stands for when kubectl runs it as a plugin: kubectl-proa_why, which
// kubectl finds for "kubectl proa-why", and kubectl-why; the same for trace.
func pluginCommand(program string) (command string, isPlugin bool) {
	name, isPlugin := strings.CutPrefix(filepath.Base(program), "kubectl-")
	name = strings.TrimPrefix(name, "proa_")
	if !isPlugin || name != "why" && name != "trace" {
		return "", false
	}
	return name, true
}
