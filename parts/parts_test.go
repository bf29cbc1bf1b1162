package parts

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestWayOfRunc(t *testing.T) {
	for name, c := range map[string]struct {
		available tools
		want      wayOfRunc
	}{
		"everything":             {tools{compiler: true, seccomp: true, apt: true, host: "/usr/bin/runc"}, wayBuild},
		"root without headers":   {tools{compiler: true, apt: true, host: "/usr/bin/runc"}, wayInstall},
		"root without compiler":  {tools{apt: true}, wayInstall},
		"user with a host runc":  {tools{compiler: true, host: "/usr/bin/runc"}, wayHost},
		"user with a compiler":   {tools{compiler: true}, wayUnsupported},
		"headers but no program": {tools{seccomp: true}, wayNone},
		"nothing":                {tools{}, wayNone},
	} {
		if got := c.available.way(); got != c.want {
			t.Errorf("%s: way %d, want %d", name, got, c.want)
		}
	}
}

func TestRecipeChangesWithItsInputs(t *testing.T) {
	p := programs()["containerd"]
	base := recipe([]byte("sums"), p.args("v1"), false)
	for name, other := range map[string]string{
		"sums":    recipe([]byte("other"), p.args("v1"), false),
		"version": recipe([]byte("sums"), p.args("v2"), false),
		"cgo":     recipe([]byte("sums"), p.args("v1"), true),
		"tags":    recipe([]byte("sums"), programs()["containerd-shim-runc-v2"].args("v1"), false),
	} {
		if other == base {
			t.Errorf("other %s, same recipe", name)
		}
	}
	if again := recipe([]byte("sums"), p.args("v1"), false); again != base {
		t.Error("same inputs, other recipe")
	}
}

func TestPinsNameEveryPart(t *testing.T) {
	all := programs()
	all["runc"] = runcProgram("", static)
	for name, p := range all {
		pins := filepath.Join("..", p.Pins)
		tools, err := os.ReadFile(filepath.Join(pins, "tools.go"))
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(tools), `"`+p.Package+`"`) {
			t.Errorf("%s: tools.go does not import %s, so go.sum may lack what it needs", name, p.Package)
		}
		if v, err := Version(filepath.Join(pins, "go.mod"), p.Module); err != nil || !strings.HasPrefix(v, "v") {
			t.Errorf("%s: version %q, %v", name, v, err)
		}
	}
}

func TestUnknownPart(t *testing.T) {
	if _, err := Build(t.Context(), t.Output(), "cri-o"); err == nil || !strings.Contains(err.Error(), "cri-o") ||
		errors.Is(err, ErrMissing) {
		t.Errorf("error %v; want one that names what was asked for", err)
	}
}

func TestInstall(t *testing.T) {
	from, folder := filepath.Join(t.TempDir(), "tool"), filepath.Join(t.TempDir(), "new")
	for _, content := range []string{"one", "two, and longer"} {
		if err := os.WriteFile(from, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := Install(from, folder); err != nil {
			t.Fatal(err)
		}
		info, err := os.Stat(filepath.Join(folder, "tool"))
		if err != nil || info.Mode().Perm() != 0o755 {
			t.Fatalf("installed %v, %v", info, err)
		}
		// The same bytes are left alone.
		if err := Install(from, folder); err != nil {
			t.Fatal(err)
		}
		after, err := os.Stat(filepath.Join(folder, "tool"))
		if err != nil || !os.SameFile(info, after) {
			t.Errorf("the same program was installed again")
		}
		if data, err := os.ReadFile(filepath.Join(folder, "tool")); err != nil || string(data) != content {
			t.Errorf("installed %q, %v", data, err)
		}
	}
	if left, _ := os.ReadDir(folder); len(left) != 1 {
		t.Errorf("left behind: %v", left)
	}
}

func TestVersion(t *testing.T) {
	file := filepath.Join(t.TempDir(), "go.mod")
	text := "module x\n\nrequire (\n\tgo.etcd.io/etcd/server/v3 v3.7.3\n\tk8s.io/kubernetes v1.37.1\n)\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	for module, want := range map[string]string{"k8s.io/kubernetes": "v1.37.1", "go.etcd.io/etcd/server/v3": "v3.7.3"} {
		if got, err := Version(file, module); err != nil || got != want {
			t.Errorf("%s: %q, %v; want %q", module, got, err, want)
		}
	}
	if _, err := Version(file, "k8s.io/none"); err == nil {
		t.Error("a module that is not required was found")
	}
}

func TestCacheSetting(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("PROA_CACHE", dir)
	if got, err := Cache(); err != nil || got != dir {
		t.Errorf("cache %q, %v; want %q", got, err, dir)
	}
}
