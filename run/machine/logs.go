package machine

import (
	"fmt"
	"path/filepath"
)

// LogFile returns where a part of the cluster in a data folder writes its log. The server, and the agent of the first node, which runs in
// its process, have one, that of node ""; every further node has one of its own. containerd asks for the log of the node's container
// runtime instead.
func LogFile(dataDir, node string, containerd bool) (string, error) {
	dirs, names, err := folders(dataDir)
	if err != nil {
		return "", err
	}
	for i, dir := range dirs {
		switch {
		case node != names[i]:
			continue
		case containerd:
			return filepath.Join(runtimeDir(dir), "containerd.log"), nil
		case i == 0:
			return filepath.Join(dataDir, "server.log"), nil
		}
		return further{dir: dir}.log(), nil
	}
	return "", fmt.Errorf("the cluster in %s has no node %q on this machine", dataDir, node)
}
