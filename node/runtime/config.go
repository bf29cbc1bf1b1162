package runtime

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"proa.dev/node/cri"
)

// writeConfig writes the configuration of containerd and returns its file.
func writeConfig(c Config, l layout, f hostFacts) (string, error) {
	text := render(c, l, f)
	file := l.config(text)
	partial := file + ".partial"
	if err := os.WriteFile(partial, []byte(text), 0o600); err != nil {
		return "", fmt.Errorf("write the runtime's configuration: %w", err)
	}
	return file, os.Rename(partial, file)
}

// render returns the configuration of containerd. All paths are inside of the runtime's folders, so that several
// runtimes can run side by side, and beside one of the host.
func render(c Config, l layout, f hostFacts) string {
	var t toml
	t.set("version", 4)
	t.set("root", l.root)
	t.set("state", l.state)
	t.set("temp", filepath.Join(l.root, "tmp"))
	t.set("imports", []string{})
	t.set("disabled_plugins", disabledPlugins())
	t.section("debug")
	t.set("level", c.LogLevel)

	t.plugin("server.v1.grpc")
	t.set("address", l.socket)
	t.set("max_send_message_size", cri.MaxMessage)
	t.plugin("server.v1.ttrpc")
	t.set("address", l.socket+".ttrpc")
	t.plugin("shim.v1.manager")
	t.set("socket_dir", l.shims)
	t.plugin("internal.v1.opt")
	t.set("path", filepath.Join(l.root, "opt"))

	t.plugin("grpc.v1.cri")
	t.set("disable_tcp_service", true)
	t.set("stream_server_address", "127.0.0.1")
	t.set("stream_server_port", "0")
	images(&t, c, f)
	containers(&t, c, l, f)
	return t.String()
}

// disabledPlugins returns plugins that would only cost time at each start: snapshotters that the configuration does not use,
// restarts and adjustments that the agent does itself, and a plugin interface whose socket all runtimes of a host would
// share.
func disabledPlugins() []string {
	var out []string
	for _, name := range []string{
		"snapshotter.v1.blockfile", "snapshotter.v1.btrfs", "snapshotter.v1.devmapper", "snapshotter.v1.erofs", "snapshotter.v1.zfs",
		"differ.v1.erofs", "mount-handler.v1.erofs", "monitor.container.v1.restart", "nri.v1.nri", "image-verifier.v1.bindir",
	} {
		out = append(out, "io.containerd."+name)
	}
	return out
}

func images(t *toml, c Config, f hostFacts) {
	snapshotter := c.Snapshotter
	if snapshotter == "" {
		snapshotter = "native"
		if f.Overlay {
			snapshotter = "overlayfs"
		}
	}
	t.plugin("cri.v1.images")
	t.set("snapshotter", snapshotter)
	t.set("max_concurrent_downloads", c.MaxDownloads)
	// Pulling by the transfer service supports only one folder of registries.
	t.set("use_local_image_pull", true)
	t.plugin("cri.v1.images", "pinned_images")
	t.set("sandbox", PauseImage)
	t.plugin("cri.v1.images", "registry")
	t.set("config_path", strings.Join(c.RegistryDirs, ":"))

	t.list("transfer.v1.local", "unpack_config")
	t.set("platform", platform().text())
	t.set("snapshotter", snapshotter)
	t.set("differ", "walking")
}

func containers(t *toml, c Config, l layout, f hostFacts) {
	t.plugin("cri.v1.runtime")
	t.set("enable_selinux", f.SELinux)
	t.set("disable_apparmor", !f.AppArmor)
	t.set("restrict_oom_score_adj", !f.Resource)
	t.set("disable_hugetlb_controller", false)
	t.set("tolerate_missing_hugetlb_controller", true)
	t.set("device_ownership_from_security_context", true)
	t.set("netns_mounts_under_state_dir", true)
	t.set("enable_unprivileged_ports", true)
	t.set("enable_unprivileged_icmp", true)
	t.plugin("cri.v1.runtime", "cni")
	t.set("bin_dirs", c.CNIBinDirs)
	t.set("conf_dir", c.CNIConfDir)
	t.set("max_conf_num", 1)
	t.set("use_internal_loopback", true)
	t.plugin("cri.v1.runtime", "containerd")
	t.set("default_runtime_name", c.DefaultHandler)

	own := false
	for _, h := range c.Handlers {
		own = own || h.Name == "runc"
		handler(t, c, l, h)
	}
	if !own {
		handler(t, c, l, Handler{Name: "runc"})
	}
}

func handler(t *toml, c Config, l layout, h Handler) {
	const runcType = "io.containerd.runc.v2"
	t.plugin("cri.v1.runtime", "containerd", "runtimes", h.Name)
	kind := cmp.Or(h.Type, runcType)
	t.set("runtime_type", kind)
	if len(h.PodAnnotations) > 0 {
		t.set("pod_annotations", h.PodAnnotations)
	}
	if kind != runcType {
		return // other shims have other options, and are looked up in PATH
	}
	t.set("runtime_path", filepath.Join(c.BinDir, "containerd-shim-runc-v2"))
	t.plugin("cri.v1.runtime", "containerd", "runtimes", h.Name, "options")
	t.set("BinaryName", cmp.Or(h.Binary, filepath.Join(c.BinDir, "runc")))
	t.set("Root", filepath.Join(l.state, h.Name))
	t.set("SystemdCgroup", c.SystemdCgroup)
}

// toml writes the few forms of TOML that the configuration needs.
type toml struct{ strings.Builder }

func (t *toml) section(name string) { fmt.Fprintf(t, "\n[%s]\n", name) }

// plugin begins the settings of a plugin of containerd, or a table in them.
func (t *toml) plugin(name string, tables ...string) { t.section(pluginTable(name, tables)) }

// list begins one entry of a list of tables.
func (t *toml) list(name string, tables ...string) { t.section("[" + pluginTable(name, tables) + "]") }

func pluginTable(name string, tables []string) string {
	out := `plugins."io.containerd.` + name + `"`
	for _, table := range tables {
		out += "." + quote(table)
	}
	return out
}

func (t *toml) set(key string, value any) {
	switch v := value.(type) {
	case string:
		value = quote(v)
	case []string:
		quoted := make([]string, len(v))
		for i := range v {
			quoted[i] = quote(v[i])
		}
		value = "[" + strings.Join(quoted, ", ") + "]"
	}
	fmt.Fprintf(t, "%s = %v\n", key, value)
}

// quote quotes a string for TOML. That is correct if it has no control characters, which check rejects.
func quote(s string) string { return strconv.Quote(s) }
