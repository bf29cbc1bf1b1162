package lifecycle

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"proa.dev/cli/command"
	proa "proa.dev/run"
	"proa.dev/run/settings"
)

// installed runs an installer in a folder that is used as the root of the file system, on which systemd does not run.
func installed(t *testing.T, i installer, word string, values settings.Values) (root string, err error) {
	t.Helper()
	var out bytes.Buffer
	if i.root == "" {
		i.root = t.TempDir()
	}
	i.env, i.noStart = &command.Env{Out: &out, Err: &out}, true
	s, err := serviceOf(word)
	if err != nil {
		t.Fatal(err)
	}
	return i.root, i.install(t.Context(), s, values)
}

func content(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestInstallServer(t *testing.T) {
	root, err := installed(t, installer{}, "server",
		settings.Values{"name": {"home"}, "tls-san": {"a.example", "b.example"}, "data-dir": {"/srv/proa"}})
	if err != nil {
		t.Fatal(err)
	}
	text := content(t, filepath.Join(root, "etc/systemd/system/proa.service"))
	config := filepath.Join(root, "etc/proa/config.yaml")
	for _, want := range []string{madeBy + "/srv/proa\n", " server --config " + config + "\n", "KillMode=process", "Delegate=yes",
		"WantedBy=multi-user.target"} {
		if !strings.Contains(text, want) {
			t.Errorf("the unit does not have %q:\n%s", want, text)
		}
	}
	c, err := proa.Load(config, nil)
	if err != nil || c.Name != "home" || c.Node.Name != settings.DefaultNodeName() || len(c.ExtraSANs) != 2 || c.DataDir != "/srv/proa" {
		t.Errorf("the settings are %+v, %v", c, err)
	}
	// Settings that exist are the user's.
	if _, err := installed(t, installer{systemd: systemd{root: root}}, "server", settings.Values{"name": {"other"}}); err == nil ||
		!strings.Contains(err.Error(), "exists, and flags do not change it") {
		t.Errorf("with other flags: %v", err)
	}
	if _, err := installed(t, installer{systemd: systemd{root: root}}, "server", nil); err != nil {
		t.Errorf("once more: %v", err)
	}
	if _, err := installed(t, installer{}, "server", settings.Values{"listen": {"nowhere"}}); err == nil {
		t.Error("a wrong setting was installed")
	}
}

func TestInstallAgent(t *testing.T) {
	join := installer{server: "https://192.0.2.7:6443", token: "abcdef.0123456789abcdef"}
	root, err := installed(t, join, "agent", settings.Values{"data-dir": {"/srv/my node"}})
	if err != nil {
		t.Fatal(err)
	}
	text := content(t, filepath.Join(root, "etc/systemd/system/proa-agent.service"))
	for _, want := range []string{" agent --server https://192.0.2.7:6443 \"--data-dir=/srv/my node\"\n",
		"EnvironmentFile=/etc/proa/agent.env\n"} {
		if !strings.Contains(text, want) {
			t.Errorf("the unit does not have %q:\n%s", want, text)
		}
	}
	secret := filepath.Join(root, "etc/proa/agent.env")
	info, err := os.Stat(secret)
	if err != nil || info.Mode().Perm() != 0o600 || content(t, secret) != "PROA_TOKEN=abcdef.0123456789abcdef\n" ||
		strings.Contains(text, "0123456789abcdef") {
		t.Errorf("the token: %v, %v\n%s", info, err, text)
	}
	for what, i := range map[string]installer{"a server": {token: "x"}, "a token": {server: "https://192.0.2.7:6443"}} {
		if _, err := installed(t, i, "agent", nil); err == nil {
			t.Errorf("an agent without %s was installed", what)
		}
	}
	if _, err := installed(t, join, "agent", settings.Values{"etcd-servers": {"https://a"}}); err == nil ||
		!strings.Contains(err.Error(), "--etcd-servers is for a server") {
		t.Errorf("with a setting of a server: %v", err)
	}
}

// TestUninstall checks that a service that "proa install" has made is removed, and no other.
func TestUninstall(t *testing.T) {
	var out bytes.Buffer
	root, err := installed(t, installer{}, "server", settings.Values{})
	if err != nil {
		t.Fatal(err)
	}
	i := installer{systemd: systemd{root: root}, env: &command.Env{Out: &out, Err: &out}}
	if err := i.uninstall(t.Context(), []string{"server", "agent"}); err != nil {
		t.Errorf("uninstall: %v", err)
	}
	unit := i.unitFile(service{name: "proa"})
	if command.FileExists(unit) || !command.FileExists(i.configFile()) {
		t.Error("the unit is there, or the settings are not")
	}
	if err := i.uninstall(t.Context(), []string{"server"}); err == nil {
		t.Error("nothing was uninstalled without an error")
	}
	if err := os.WriteFile(unit, []byte("[Unit]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := i.uninstall(t.Context(), []string{"server"}); err == nil || !command.FileExists(unit) {
		t.Errorf("a unit that proa did not install was removed: %v", err)
	}
}

func TestSystemdQuote(t *testing.T) {
	for word, want := range map[string]string{
		"plain": "plain", "a b": `"a b"`, `say "x"`: `"say \"x\""`, "100%": "100%%", "$HOME": "$$HOME", "": `""`, "a\nb": `a\nb`,
	} {
		if got := systemdQuote(word); got != want {
			t.Errorf("%q is written %s, want %s", word, got, want)
		}
	}
}
