package nodetest

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"proa.dev/node/cri"
	"proa.dev/node/runtime"
)

// Runtime is a container runtime for one test, which is purged at its end.
type Runtime struct {
	*cri.Client
	// Dir is a folder for the rest of the test; the runtime looks for registries in its folder certs.d.
	Dir string
	// Socket is the CRI socket of the runtime.
	Socket string
	// CgroupRoot is the cgroup above all cgroups of the test.
	CgroupRoot string
}

// plugin is a CNI plugin for a network with one address and no routes. The loopback interface is up, as in every Pod.
const plugin = `#!/bin/sh
case "$CNI_COMMAND" in
VERSION) echo '{"cniVersion":"1.0.0","supportedVersions":["0.4.0","1.0.0"]}' ;;
ADD) echo '{"cniVersion":"1.0.0","interfaces":[{"name":"eth0","sandbox":"'$CNI_NETNS'"}],"ips":[{"address":"192.0.2.7/24","interface":0}]}' ;;
esac
`

// StartRuntime starts a runtime, or skips the test if that is not possible here.
func StartRuntime(t *testing.T) Runtime {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("containers need root")
	}
	bin, err := filepath.Abs("../bin")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat("../go.mod"); err != nil {
		bin = filepath.Join(bin, "..", "..", "bin") // the package is one folder deeper
	}
	for _, name := range []string{"containerd", "containerd-shim-runc-v2", "runc", "pause"} {
		if _, err := os.Stat(filepath.Join(bin, name)); err != nil {
			t.Skipf("%v; run make build", err)
		}
	}
	dir, err := os.MkdirTemp("", "node-") //nolint:usetesting // the path of a socket must be short
	if err != nil {
		t.Fatal(err)
	}
	// A Pod with a user namespace enters it as another user.
	if err := os.Chmod(dir, 0o711); err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn}))
	write(t, filepath.Join(dir, "bin", "testnet"), plugin, 0o755)
	write(t, filepath.Join(dir, "net", "10-testnet.conflist"), `{"cniVersion":"1.0.0","name":"testnet","plugins":[{"type":"testnet"}]}`, 0o644)
	rt := Runtime{Dir: dir, CgroupRoot: "proatest" + strings.TrimPrefix(filepath.Base(dir), "node-")}
	c := runtime.Config{
		DataDir: filepath.Join(dir, "rt"), BinDir: bin, CgroupRoot: "/" + rt.CgroupRoot,
		CNIBinDirs: []string{filepath.Join(dir, "bin")}, CNIConfDir: filepath.Join(dir, "net"),
		RegistryDirs: []string{filepath.Join(dir, "certs.d")},
	}
	t.Cleanup(func() {
		if err := runtime.Purge(context.WithoutCancel(t.Context()), c, log); err != nil {
			t.Errorf("purge: %v", err)
		}
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	r, err := runtime.Start(t.Context(), c, log)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Detach)
	rt.Socket = r.Socket()
	if rt.Client, err = cri.Dial(rt.Socket); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = rt.Close() })
	return rt
}

// Load imports an image archive into the runtime.
func (r Runtime) Load(t *testing.T, archive string) {
	t.Helper()
	f, err := os.Open(archive)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := runtime.ImportImages(t.Context(), r.Socket, f); err != nil {
		t.Fatal(err)
	}
}

func write(t *testing.T, path, text string, mode os.FileMode) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), mode); err != nil {
		t.Fatal(err)
	}
}
