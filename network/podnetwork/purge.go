package podnetwork

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"proa.dev/network/interfaces"
	"proa.dev/network/nft"
)

// Purge removes everything that the Pod network of a node has created: interfaces, rules, sysctls, files. It must not
// run at the same time as Serve. It continues after an error, and can be repeated.
func Purge(config Config) error {
	if config.DataDir == "" {
		return errors.New("pod network: no data folder was given")
	}
	config.Bridge = config.BridgeName()
	if config.Table == "" {
		config.Table = "proa"
	}
	if config.Socket == "" {
		config.Socket = socketFor(config.folder())
	}
	host, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return fmt.Errorf("open netlink: %w", err)
	}
	defer host.Close()
	errs := []error{
		removeTable(config.Table), removePairs(host, config), interfaces.Remove(host, config.Bridge), restoreSysctls(host, config),
		removeConfs(config),
	}
	if strings.HasPrefix(config.Socket, "/run/proa/") {
		errs = append(errs, os.RemoveAll(filepath.Dir(config.Socket)))
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	if err := os.RemoveAll(config.folder()); err != nil {
		return fmt.Errorf("remove the files of the pod network: %w", err)
	}
	return nil
}

func removeTable(name string) error {
	kernel, err := nft.Open()
	if err != nil {
		return err
	}
	err = kernel.RemoveBridge(name)
	if errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.EAFNOSUPPORT) {
		err = nil
	}
	return errors.Join(err, kernel.Unpass(name), kernel.Remove(name), kernel.Close())
}

// removePairs removes the interfaces of all Pods. Interfaces on the bridge are removed even if no file names them.
func removePairs(host *netlink.Handle, config Config) error {
	var errs []error
	entries, err := os.ReadDir(filepath.Join(config.folder(), "addresses"))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		errs = append(errs, fmt.Errorf("read the addresses in use: %w", err))
	}
	for _, e := range entries {
		r, err := readRecord(filepath.Join(config.folder(), "addresses", e.Name()))
		if err != nil {
			continue
		}
		errs = append(errs, interfaces.Remove(host, r.HostIf))
		if r.Shaped {
			errs = append(errs, interfaces.Remove(host, ifbName(r.HostIf)))
		}
	}
	if bridge, err := host.LinkByName(config.Bridge); err == nil && bridge.Type() == "bridge" {
		links, err := interfaces.Links(host)
		errs = append(errs, err)
		for _, link := range links {
			if link.Attrs().MasterIndex == bridge.Attrs().Index && strings.HasPrefix(link.Attrs().Name, "veth") {
				errs = append(errs, interfaces.Remove(host, link.Attrs().Name))
			}
		}
	}
	return errors.Join(errs...)
}

// restoreSysctls restores the former values of sysctls. While another Pod network of ours is on the machine they must
// stay: then the former values are handed over, and the last network restores them.
func restoreSysctls(host *netlink.Handle, config Config) error {
	former, err := readSysctls(filepath.Join(config.folder(), sysctlsName))
	if err != nil {
		return err
	}
	shared, err := handedOver()
	if err != nil {
		return err
	}
	before, err := readSysctls(shared)
	if err != nil {
		return err
	}
	maps.Copy(former, before) // values that were handed over are older
	if len(former) == 0 {
		return nil
	}
	if hasOtherNetwork(host, config.Bridge) {
		raw, err := json.Marshal(former)
		if err != nil {
			return fmt.Errorf("encode the kernel's settings: %w", err)
		}
		if err := os.MkdirAll(filepath.Dir(shared), 0o755); err != nil { //nolint:gosec // G301: sockets of several nodes are below it
			return fmt.Errorf("hand the kernel's former settings over: %w", err)
		}
		return os.WriteFile(shared, raw, 0o600)
	}
	var errs []error
	for name, value := range former {
		if err := sysctl(name, value); err != nil && !errors.Is(err, os.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	if err := os.Remove(shared); err != nil && !errors.Is(err, os.ErrNotExist) {
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// handedOver returns the file with former sysctls for the network namespace of this process.
func handedOver() (string, error) {
	var st unix.Stat_t
	if err := unix.Stat("/proc/thread-self/ns/net", &st); err != nil {
		return "", fmt.Errorf("find the network namespace: %w", err)
	}
	return fmt.Sprintf("/run/proa/settings-%d.json", st.Ino), nil
}

// hasOtherNetwork reports whether another Pod network of ours is on this machine.
func hasOtherNetwork(host *netlink.Handle, bridge string) bool {
	links, err := interfaces.Links(host)
	if err != nil {
		return true // leaving a sysctl changed is better than breaking the other network
	}
	return slices.ContainsFunc(links, func(l netlink.Link) bool {
		return l.Type() == "bridge" && l.Attrs().Name != bridge && strings.HasPrefix(l.Attrs().Name, "proa")
	})
}

func removeConfs(config Config) error {
	raw, err := os.ReadFile(filepath.Join(config.folder(), confsName))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("find the CNI configurations: %w", err)
	}
	for line := range strings.Lines(string(raw)) {
		if err := os.Remove(strings.TrimSpace(line)); err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("remove the CNI configuration: %w", err)
		}
	}
	return nil
}
