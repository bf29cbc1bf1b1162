package podnetwork

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// The files with what Purge must undo.
const (
	sysctlsName = "sysctls.json"
	confsName   = "confs"
)

// sysctl writes a sysctl of the network namespace of the thread.
func sysctl(name, value string) error {
	if err := os.WriteFile("/proc/sys/"+name, []byte(value), 0); err != nil {
		return fmt.Errorf("set the kernel's %s to %s: %w", strings.ReplaceAll(name, "/", "."), value, err)
	}
	return nil
}

// setSysctl changes a sysctl of the node, and stores its value before the first change for Purge.
func (n *Network) setSysctl(name, value string) error {
	was, err := os.ReadFile("/proc/sys/" + name)
	if err != nil {
		return fmt.Errorf("read a setting of the kernel: %w", err)
	}
	was = bytes.TrimSpace(was)
	if string(was) == value {
		return nil
	}
	file := filepath.Join(n.folder(), sysctlsName)
	former, err := readSysctls(file)
	if err != nil {
		return err
	}
	if _, ok := former[name]; !ok {
		former[name] = string(was)
		raw, err := json.Marshal(former)
		if err != nil {
			return fmt.Errorf("encode the kernel's settings: %w", err)
		}
		if err := os.WriteFile(file, raw, 0o600); err != nil {
			return fmt.Errorf("keep the kernel's settings: %w", err)
		}
	}
	return sysctl(name, value)
}

func readSysctls(file string) (map[string]string, error) {
	former := map[string]string{}
	raw, err := os.ReadFile(file)
	if errors.Is(err, os.ErrNotExist) {
		return former, nil
	}
	if err == nil {
		err = json.Unmarshal(raw, &former)
	}
	if err != nil {
		return nil, fmt.Errorf("read the kernel's former settings: %w", err)
	}
	if former == nil { // the file holds null
		former = map[string]string{}
	}
	return former, nil
}

// appendLine adds a line to a file, unless the file has it already.
func appendLine(file, line string) error {
	raw, err := os.ReadFile(file)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("remember %s: %w", line, err)
	}
	for have := range strings.Lines(string(raw)) {
		if strings.TrimSpace(have) == line {
			return nil
		}
	}
	if err := os.WriteFile(file, append(raw, line+"\n"...), 0o600); err != nil {
		return fmt.Errorf("remember %s: %w", line, err)
	}
	return nil
}
