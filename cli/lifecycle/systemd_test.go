package lifecycle

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"proa.dev/cli/command"
	"proa.dev/cli/localcluster"
	proa "proa.dev/run"
	"proa.dev/run/machine/nodefolder"
)

// fakeSystemd is a machine with systemd, in a folder that is used as the root of its file system.
type fakeSystemd struct {
	systemd
	t     *testing.T
	calls []string
	// onCall is what systemctl does.
	onCall func(args ...string)
}

func newFakeSystemd(t *testing.T) *fakeSystemd {
	t.Helper()
	f := &fakeSystemd{t: t, onCall: func(...string) {}}
	f.systemd = systemd{root: t.TempDir(), call: func(_ context.Context, args ...string) ([]byte, error) {
		f.calls = append(f.calls, strings.Join(args, " "))
		f.onCall(args...)
		return nil, nil
	}}
	f.write("run/systemd/system/x", "")
	return f
}

func (f *fakeSystemd) write(name, text string) {
	f.t.Helper()
	path := filepath.Join(f.root, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		f.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		f.t.Fatal(err)
	}
}

// TestDownOfService checks that "down" lets systemd stop a server that is a service: systemd would start it again after a signal.
func TestDownOfService(t *testing.T) {
	dir, server, _ := startStubbornServer(t)
	f := newFakeSystemd(t)
	f.write("etc/systemd/system/proa.service", unit(services()[0], "/proa", []string{"server"}, "/elsewhere"))
	f.write(fmt.Sprintf("proc/%d/cgroup", server.Process.Pid), "12:memory:/system.slice/proa.service/agent\n0::/system.slice/proa.service/agent\n")
	f.onCall = func(...string) {
		_ = server.Process.Kill()
		_ = server.Wait()
	}
	run := func(o downOptions) (string, error) {
		var out bytes.Buffer
		o.limit, o.systemd = time.Minute, f.systemd
		err := down(t.Context(), &command.Env{Out: &out, Err: &out}, localcluster.Cluster{Dir: dir}, o)
		return out.String(), err
	}
	if _, err := run(downOptions{purge: true}); err == nil || !strings.Contains(err.Error(), "proa uninstall") || len(f.calls) > 0 {
		t.Errorf("down --purge of a service: %v, systemctl %q", err, f.calls)
	}
	out, err := run(downOptions{})
	if err != nil || strings.Join(f.calls, "; ") != "stop proa" || !strings.Contains(out, `"systemctl start proa" starts it again`) {
		t.Errorf("down of a service: %v, systemctl %q\n%s", err, f.calls, out)
	}
}

// TestDownOfServiceWithoutProcess checks that "down" stops a service whose server has just ended too: systemd may be about to start it
// again. "down --purge" would leave a unit that makes a new cluster in the folder.
func TestDownOfServiceWithoutProcess(t *testing.T) {
	f, dir := newFakeSystemd(t), t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "pki"), 0o700); err != nil {
		t.Fatal(err)
	}
	f.write("etc/systemd/system/proa.service", unit(services()[0], "/proa", []string{"server"}, dir))
	var out bytes.Buffer
	env, c := &command.Env{Out: &out, Err: &out}, localcluster.Cluster{Dir: dir}
	err := down(t.Context(), env, c, downOptions{limit: time.Minute, systemd: f.systemd, purge: true})
	if err == nil || !strings.Contains(err.Error(), "proa uninstall") || len(f.calls) > 0 || !command.FileExists(dir) {
		t.Errorf("down --purge: %v, systemctl %q", err, f.calls)
	}
	err = down(t.Context(), env, c, downOptions{limit: time.Minute, systemd: f.systemd})
	if err != nil || strings.Join(f.calls, "; ") != "stop proa" {
		t.Errorf("down: %v, systemctl %q\n%s", err, f.calls, out.String())
	}
}

func TestServiceOfProcess(t *testing.T) {
	f := newFakeSystemd(t)
	for _, s := range services() {
		f.write("etc/systemd/system/"+s.name+".service", unit(s, "/proa", []string{"server"}, "/var/lib/"+s.name))
	}
	for text, want := range map[string]string{
		"0::/system.slice/proa.service\n":                         "proa",
		"1:name=systemd:/system.slice/proa-agent.service/a\n":     "proa-agent",
		"0::/system.slice/runner.service\n":                       "",
		"0::/user.slice/user-0.slice/session-3.scope\n":           "",
		"0::/user.slice/user@0.service/app.slice/xproa.service\n": "",
		"0::/user.slice/user@0.service/app.slice/proa.service\n":  "", // a service of a user, with its own systemd
		"": "",
	} {
		f.write("proc/7/cgroup", text)
		if got := f.serviceOfProcess(7); got != want {
			t.Errorf("%q: service %q, want %q", text, got, want)
		}
	}
	if got := f.serviceOfProcess(8); got != "" {
		t.Errorf("a process that has ended: service %q", got)
	}
	f.write("proc/7/cgroup", "0::/system.slice/proa.service\n")
	f.write("etc/systemd/system/proa.service", "[Service]\nExecStart=/proa server\n")
	if got := f.serviceOfProcess(7); got != "" {
		t.Errorf("a unit that \"proa install\" has not written: service %q", got)
	}
}

// TestUpOfService checks that the folder of an installed service gets no server beside it.
func TestUpOfService(t *testing.T) {
	f, dir := newFakeSystemd(t), t.TempDir()
	f.write("etc/systemd/system/proa.service", unit(services()[0], "/proa", []string{"server"}, dir))
	if got, other := f.serviceOfFolder(dir), f.serviceOfFolder(dir+"x"); got != "proa" || other != "" {
		t.Errorf("the service of the folder is %q, that of another folder %q", got, other)
	}
	var out bytes.Buffer
	u := &upCommandRun{env: &command.Env{Out: &out, Err: &out}, noNode: true, noMerge: true, systemd: f.systemd}
	err := u.up(t.Context(), map[string][]string{"data-dir": {dir}, "listen": {"127.0.0.1:0"}})
	if err == nil || !strings.Contains(err.Error(), "systemctl start proa") {
		t.Errorf("up: %v\n%s", err, out.String())
	}
}

// TestUpOfSilentServer checks what "up" says of a server that answers nothing for as long as it waits.
func TestUpOfSilentServer(t *testing.T) {
	dir, server, _ := startStubbornServer(t)
	var out bytes.Buffer
	u := &upCommandRun{env: &command.Env{Out: &out, Err: &out}, timeout: time.Second}
	began := time.Now().Add(-time.Minute) // the time has passed while it was asked for the first time
	await := serverToAwait{pid: server.Process.Pid, begin: began}
	err := u.wait(t.Context(), localcluster.Cluster{Dir: dir}, await, []step{{name: "API server"}})
	if err == nil || !strings.Contains(err.Error(), "not ready after 1s (API server: it has not answered yet)") {
		t.Errorf("it says %v", err)
	}
}

// TestUpKeepsRunningService checks that "up" with another number of nodes does not stop a service, which systemd would start again.
func TestUpKeepsRunningService(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("nodes need root")
	}
	dir, server, _ := startStubbornServer(t)
	f := newFakeSystemd(t)
	f.write("etc/systemd/system/proa.service", unit(services()[0], "/proa", []string{"server"}, "/elsewhere"))
	f.write(fmt.Sprintf("proc/%d/cgroup", server.Process.Pid), "0::/system.slice/proa.service\n")
	stored := "data-dir: " + dir + "\nnode: a\nnodes: 2\nlisten: 127.0.0.1:0\ncluster-cidr: 10.222.0.0/16\nservice-cidr: 10.223.0.0/16\n"
	if err := os.WriteFile(filepath.Join(dir, localcluster.SettingsFile), []byte(stored), 0o600); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	u := &upCommandRun{env: &command.Env{Out: &out, Err: &out}, noMerge: true, systemd: f.systemd}
	err := u.up(t.Context(), map[string][]string{"data-dir": {dir}, "nodes": {"3"}})
	if err == nil || !strings.Contains(err.Error(), "systemctl restart proa") || strings.Contains(out.String(), "Stopped") {
		t.Errorf("up --nodes 3: %v\n%s", err, out.String())
	}
}

// TestStepsOfRunningServer checks that "up" waits for the nodes that the running server has, whatever the last "proa up" was started with.
func TestStepsOfRunningServer(t *testing.T) {
	c := localcluster.Cluster{Dir: t.TempDir()}
	conf := proa.Default()
	conf.DataDir, conf.Node.Name, conf.Nodes = c.Dir, "of-up", 2
	check := func(when, want string, args ...string) {
		t.Helper()
		steps, err := stepsOfRunning(c, conf, args)
		var names []string
		for _, s := range steps {
			names = append(names, s.name)
		}
		if err != nil || strings.Join(names, ", ") != want {
			t.Errorf("%s: %q, %v, want %s", when, names, err, want)
		}
	}
	check("started by up", "API server, node of-up, node of-up-2", "proa", "server", "--config", c.Path(localcluster.SettingsFile))
	check("another server, which just starts", "API server", "proa", "server")
	other, err := proa.Load("", map[string][]string{"data-dir": {c.Dir}, "node": {"of-server"}})
	if err == nil {
		err = nodefolder.StoreServerSettings(&other.Config)
	}
	if err != nil {
		t.Fatal(err)
	}
	check("another server", "API server, node of-server", "proa", "server", "--node", "of-server")
	_, err = stepsOfRunning(c, conf, []string{"proa", "agent"})
	if err == nil || !strings.Contains(err.Error(), "a node of another cluster") {
		t.Errorf("an agent: %v", err)
	}
}

// TestUninstallKeepsServiceWhosePodsRun checks that a service stays as it was if its Pods cannot be stopped.
func TestUninstallKeepsServiceWhosePodsRun(t *testing.T) {
	f, dir := newFakeSystemd(t), t.TempDir()
	f.write("etc/systemd/system/proa.service", unit(services()[0], "/proa", []string{"server"}, dir))
	if err := os.WriteFile(filepath.Join(dir, "nodes"), nil, 0o600); err != nil { // which should be a folder
		t.Fatal(err)
	}
	var out bytes.Buffer
	i := installer{systemd: f.systemd, env: &command.Env{Out: &out, Err: &out}}
	err := i.uninstall(t.Context(), []string{"server"})
	if err == nil || len(f.calls) > 0 || !command.FileExists(f.unitFile(services()[0])) {
		t.Errorf("uninstall: %v, systemctl %q", err, f.calls)
	}
	if err := os.Remove(filepath.Join(dir, "nodes")); err != nil {
		t.Fatal(err)
	}
	err = i.uninstall(t.Context(), []string{"server"})
	if err != nil || strings.Join(f.calls, "; ") != "disable --now proa; daemon-reload" {
		t.Errorf("uninstall: %v, systemctl %q", err, f.calls)
	}
}
