package runtime

import (
	"bufio"
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// hostFacts are the properties of the host that the configuration depends on.
type hostFacts struct {
	// Resource reports whether the OOM score of a process can be lowered, which needs CAP_SYS_RESOURCE.
	Resource bool
	AppArmor bool
	SELinux  bool
	Overlay  bool
}

// probeHost reads the facts. Whether overlayfs works on the file system of the data folder is tested by mounting one there.
func probeHost(root string) hostFacts {
	status, _ := os.ReadFile("/proc/self/status")
	apparmor, _ := os.ReadFile("/sys/module/apparmor/parameters/enabled")
	_, selinux := os.Stat("/sys/fs/selinux/enforce")
	return hostFacts{
		Resource: capability(status, 24),
		AppArmor: strings.HasPrefix(string(apparmor), "Y"),
		SELinux:  selinux == nil,
		Overlay:  overlayWorks(root),
	}
}

// capability reads from /proc/self/status whether a process has a capability.
func capability(status []byte, bit uint) bool {
	lines := bufio.NewScanner(bytes.NewReader(status))
	for lines.Scan() {
		if text, ok := strings.CutPrefix(lines.Text(), "CapEff:"); ok {
			set, err := strconv.ParseUint(strings.TrimSpace(text), 16, 64)
			return err == nil && set&(1<<bit) != 0
		}
	}
	return false
}

// overlayWorks tests whether overlayfs works on the file system of a folder.
func overlayWorks(dir string) bool {
	tmp, err := os.MkdirTemp(dir, ".overlay-")
	if err != nil {
		return false
	}
	defer os.RemoveAll(tmp)
	for _, name := range []string{"lower", "upper", "work", "merged"} {
		if err := os.Mkdir(filepath.Join(tmp, name), 0o700); err != nil {
			return false
		}
	}
	options := "lowerdir=" + tmp + "/lower,upperdir=" + tmp + "/upper,workdir=" + tmp + "/work"
	merged := filepath.Join(tmp, "merged")
	if err := syscall.Mount("overlay", merged, "overlay", 0, options); err != nil {
		return false
	}
	return syscall.Unmount(merged, 0) == nil
}
