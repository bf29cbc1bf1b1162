package teardown

import (
	"os"
	"strings"
)

// NodeData is the data that is lost when a node of this machine is removed.
type NodeData struct {
	Node string
	// Volumes are the names of the PersistentVolumes whose folders are on the node.
	Volumes []string
	// EmptyDirs are the emptyDir volumes that are not empty, as "namespace/pod: volume".
	EmptyDirs []string
}

// IsEmpty tells whether nothing is lost.
func (d NodeData) IsEmpty() bool { return len(d.Volumes)+len(d.EmptyDirs) == 0 }

// podNames returns the names of the Pods of a node by their UIDs, from the names of their log folders:
// NAMESPACE_NAME_UID.
func podNames(logs string) map[string]string {
	out := map[string]string{}
	entries, _ := os.ReadDir(logs) // without logs there are no names
	for _, e := range entries {
		if parts := strings.Split(e.Name(), "_"); len(parts) == 3 {
			out[parts[2]] = parts[0] + "/" + parts[1]
		}
	}
	return out
}
