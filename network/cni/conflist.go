package cni

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
)

// Program is the name of the program in the folder of CNI plugins.
const Program = "proa-cni"

// WriteConf writes the configuration that makes a runtime use the Pod network behind a socket, atomically. A runtime
// considers the network ready once the file exists.
func WriteConf(file, name, socket string) error {
	conf := map[string]any{
		// Runtimes that know the newer field choose the newest version of the two.
		"cniVersion":  "1.0.0",
		"cniVersions": []string{"1.0.0", Current},
		"name":        name,
		"plugins": []any{map[string]any{
			"type":         Program,
			"socket":       socket,
			"capabilities": map[string]bool{"portMappings": true, "bandwidth": true},
		}},
	}
	raw, err := json.MarshalIndent(conf, "", "  ")
	if err != nil {
		return fmt.Errorf("encode the CNI configuration: %w", err)
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil { //nolint:gosec // G301: any runtime reads it
		return fmt.Errorf("make the folder of CNI configurations: %w", err)
	}
	// With this suffix no runtime reads the unfinished file.
	tmp := file + ".new"
	if err := os.WriteFile(tmp, append(raw, '\n'), //nolint:gosec // G306: any runtime reads it, and nothing in it is secret
		0o644); err != nil {
		return fmt.Errorf("write the CNI configuration: %w", err)
	}
	if err := os.Rename(tmp, file); err != nil {
		return fmt.Errorf("write the CNI configuration: %w", err)
	}
	return nil
}
