package machine

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"

	"proa.dev/network/mesh"
)

// meshFile remembers to which networks routes were made: another cluster on the machine may have some with the same number.
func meshFile(dataDir string) string { return filepath.Join(nodeDir(dataDir), "pod-networks") }

func keepPrefixes(file string, all []netip.Prefix) error {
	var text strings.Builder
	for _, p := range all {
		fmt.Fprintln(&text, p)
	}
	return os.WriteFile(file, []byte(text.String()), 0o600)
}

// purgeMesh removes the ways to other nodes.
func purgeMesh(dataDir string) error {
	data, err := os.ReadFile(meshFile(dataDir))
	if errors.Is(err, os.ErrNotExist) {
		return nil // there were none
	}
	if err != nil {
		return err
	}
	config := meshOf(dataDir)
	for _, word := range strings.Fields(string(data)) {
		if p, err := netip.ParsePrefix(word); err == nil {
			config.Networks = append(config.Networks, p)
		}
	}
	return mesh.Purge(config)
}
