package runtime

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"unicode"

	"proa.dev/node/subprocess"
)

func (c Config) withDefaults() Config {
	if c.DefaultHandler == "" {
		c.DefaultHandler = "runc"
	}
	if c.MaxDownloads == 0 {
		c.MaxDownloads = 3
	}
	if c.LogLevel == "" {
		c.LogLevel = "warn"
	}
	if c.LogBytes == 0 {
		c.LogBytes = subprocess.MaxLogBytes
	}
	if c.CNIConfDir == "" {
		c.CNIConfDir = newLayout(c.DataDir).network
	}
	if len(c.CNIBinDirs) == 0 {
		c.CNIBinDirs = []string{c.BinDir, "/opt/cni/bin"}
	}
	if len(c.RegistryDirs) == 0 {
		c.RegistryDirs = []string{filepath.Join(c.DataDir, "certs.d"), "/etc/containerd/certs.d"}
	}
	return c
}

// handlerName matches the names of handlers; they become keys of the configuration.
var handlerName = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`)

// check rejects settings that containerd would not understand, or would understand in another way.
func (c Config) check() error {
	paths := slices.Concat([]string{c.DataDir, c.BinDir, c.CNIConfDir}, c.CNIBinDirs, c.RegistryDirs)
	for _, p := range paths {
		if !filepath.IsAbs(p) || strings.ContainsFunc(p,
			func(r rune) bool { return r == unicode.ReplacementChar || r == ':' || !unicode.IsPrint(r) }) {
			return fmt.Errorf("the runtime cannot use the folder %q; give an absolute path without colons and control characters", p)
		}
	}
	for _, h := range c.Handlers {
		if text := h.Type + h.Binary + strings.Join(h.PodAnnotations, ""); strings.ContainsFunc(text,
			func(r rune) bool { return !unicode.IsPrint(r) }) {
			return fmt.Errorf("runtime handler %q has control characters in its settings", h.Name)
		}
	}
	names := []string{"runc"}
	for _, h := range c.Handlers {
		if !handlerName.MatchString(h.Name) {
			return fmt.Errorf("runtime handler %q must be lower-case letters, digits and dashes", h.Name)
		}
		if h.Name != "runc" && slices.Contains(names, h.Name) {
			return fmt.Errorf("runtime handler %q is given twice", h.Name)
		}
		names = append(names, h.Name)
	}
	if !slices.Contains(names, c.DefaultHandler) {
		return fmt.Errorf("the default runtime handler %q is not among the handlers %q", c.DefaultHandler, names)
	}
	if !slices.Contains([]string{"", "overlayfs", "native"}, c.Snapshotter) {
		return fmt.Errorf("there is no snapshotter %q; overlayfs and native are known", c.Snapshotter)
	}
	if !slices.Contains([]string{"debug", "info", "warn", "error"}, c.LogLevel) {
		return fmt.Errorf("there is no log level %q; debug, info, warn and error are known", c.LogLevel)
	}
	if c.MaxDownloads < 0 || c.LogBytes < 0 {
		return errors.New("limits of the runtime must not be negative")
	}
	return nil
}

// checkHost checks that the host has what the runtime needs.
func (c Config) checkHost() error {
	if os.Geteuid() != 0 {
		return errors.New("containers need root; run proa as root, or use simulated nodes")
	}
	for _, name := range []string{"containerd", "containerd-shim-runc-v2", "runc", "pause"} {
		info, err := os.Stat(filepath.Join(c.BinDir, name))
		if err != nil {
			return fmt.Errorf("the runtime needs %s in %s: %w; \"proa check\" says what else is missing", name, c.BinDir, err)
		}
		if !info.Mode().IsRegular() || info.Mode().Perm()&0o111 == 0 {
			return fmt.Errorf("%s is not a program", filepath.Join(c.BinDir, name))
		}
	}
	return nil
}
