// Package ui tests the dashboard in a real browser, against the built binary. It needs node, npm and Chromium, and skips without them.
package ui

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"proa.dev/test/images/build"
	"proa.dev/test/ports"
)

// find returns the first of some programs that is installed, or skips the test.
func find(t *testing.T, names ...string) string {
	t.Helper()
	for _, name := range names {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	t.Skipf("%s is not installed", names[0])
	return ""
}

// findBrowser returns the browser. The one without windows comes first: it needs a quarter less processor time than the whole one.
func findBrowser(t *testing.T) string {
	t.Helper()
	return find(t, "chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
}

// modules returns the folder with the npm packages. They are installed once for each state of the lock file, and only where CI is set:
// a test on somebody's machine fetches nothing.
func modules(t *testing.T) string {
	t.Helper()
	lock, err := os.ReadFile("package-lock.json")
	if err != nil {
		t.Fatal(err)
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Skip(err)
	}
	sum := sha256.Sum256(lock)
	folder := filepath.Join(cache, "proa", "ui-test-"+hex.EncodeToString(sum[:6]))
	if _, err := os.Stat(filepath.Join(folder, "node_modules", "playwright-core")); err == nil {
		return folder
	}
	if os.Getenv("CI") == "" {
		t.Skipf("the npm packages are not in %s; with CI=1 the test installs them", folder)
	}
	npm := find(t, "npm")
	if err := os.MkdirAll(folder, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"package.json", "package-lock.json"} {
		data, err := os.ReadFile(name)
		if err == nil {
			err = os.WriteFile(filepath.Join(folder, name), data, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.CommandContext(t.Context(), npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error")
	cmd.Dir = folder
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Skipf("npm cannot install the packages: %v\n%s", err, out)
	}
	return folder
}

// program returns the built proa.
func program(t *testing.T) string {
	t.Helper()
	path := os.Getenv("PROA_BIN")
	if path == "" {
		path = filepath.Join("..", "..", "bin", "proa")
	}
	path, err := filepath.Abs(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); err != nil {
		t.Skip("proa is not built: make build")
	}
	return path
}

// output collects what a program prints, and says when a pattern has come.
type output struct {
	text  bytes.Buffer
	want  *regexp.Regexp
	found chan []string
}

// Write adds output.
func (o *output) Write(p []byte) (int, error) {
	o.text.Write(p)
	if m := o.want.FindStringSubmatch(o.text.String()); m != nil && o.found != nil {
		o.found <- m
		o.found = nil
	}
	return len(p), nil
}

// The scripts run side by side, each with a cluster and a browser of its own, those that take longest first.

// TestAccessibility looks at every view in both themes.
func TestAccessibility(t *testing.T) { playOnSimulatedNodes(t, "accessibility.mjs") }

// TestTrace plays real traces hop by hop, and uses the waterfall.
func TestTrace(t *testing.T) { playOnSimulatedNodes(t, "trace.mjs") }

// TestDashboard uses every view on simulated nodes.
func TestDashboard(t *testing.T) { playOnSimulatedNodes(t, "page.mjs") }

// TestLargeList looks at what ten thousand Pods cost the page.
func TestLargeList(t *testing.T) { playOnSimulatedNodes(t, "large.mjs") }

// TestRights uses the page with few rights, and looks at owners.
func TestRights(t *testing.T) { playOnSimulatedNodes(t, "rights.mjs") }

// TestFirstPaint looks at what the page needs before it is painted. With UI_LOADS the page is loaded so many times, and the test prints how
// long it took.
func TestFirstPaint(t *testing.T) { playOnSimulatedNodes(t, "firstpaint.mjs") }

// TestCreate pastes YAML, checks it and applies it.
func TestCreate(t *testing.T) { playOnSimulatedNodes(t, "create.mjs") }

// playOnSimulatedNodes runs a script on a new cluster of three simulated nodes.
func playOnSimulatedNodes(t *testing.T, script string) {
	t.Helper()
	t.Parallel()
	c := newCluster(t)
	c.playUndisturbed(func() { c.up("--simulate", "3") }, script)
}

// TestLogsAndShell follows the logs of a container and works in a shell, which needs a node that runs containers. It runs alone: a node
// makes network interfaces, which disturb the browsers of the others.
func TestLogsAndShell(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("a node needs root")
	}
	c := newCluster(t)
	if out, err := c.command(t.Context(), "check").CombinedOutput(); err != nil {
		t.Skipf("this machine cannot run a node: %v\n%s", err, out)
	}
	archives, err := build.Archives(t.Context(), "busybox")
	if err != nil {
		t.Skipf("the image of the test cannot be built here: %v", err)
	}
	// Networks that no cluster takes by itself; tests of others use the lower ones.
	block := 16 + os.Getpid()%15
	nodePort := ports.Strings(t, 1)[0]
	c.playUndisturbed(func() {
		c.up("--node", "a", "--node-port", nodePort, "--cluster-cidr", fmt.Sprintf("10.%d.0.0/16", 64+block),
			"--service-cidr", fmt.Sprintf("10.%d.0.0/16", 97+block), "--image-gc-high-threshold", "100",
			"--eviction-hard", "memory.available<50Mi,nodefs.available<1%,imagefs.available<1%")
		c.run(append([]string{"images", "load", "--data-dir", c.data}, archives...)...)
	}, "node.mjs", "UI_IMAGE="+busybox)
}

// busybox is the name of the image in its archive.
const busybox = "proa.test/busybox:1"

// cluster is one that the dashboard is used on.
type cluster struct {
	*testing.T
	chromium, node, proa, packages string
	home, data, port, login        string
	env                            []string
	isUp                           bool
}

// newCluster finds the programs, and skips the test where one is missing. The cluster is not started yet.
func newCluster(t *testing.T) *cluster {
	t.Helper()
	if testing.Short() {
		t.Skip("it needs a browser")
	}
	c := &cluster{T: t, chromium: findBrowser(t), node: find(t, "node")}
	c.proa, c.packages = program(t), modules(t)
	home, err := os.MkdirTemp("", "proa-ui-") // short: sockets of nodes are below it
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(home) })
	t.Cleanup(c.down)
	c.home, c.data, c.login = home, filepath.Join(home, "data"), filepath.Join(home, "login.html")
	c.port = ports.Strings(t, 1)[0]
	// A program in place of the desktop's, which keeps the page that it should open.
	opener := "#!/bin/sh\ncp \"$1\" " + c.login + ".part && mv " + c.login + ".part " + c.login + "\n"
	if err := os.WriteFile(filepath.Join(home, "xdg-open"), []byte(opener), 0o755); err != nil {
		t.Fatal(err)
	}
	c.env = append(os.Environ(), "HOME="+home, "KUBECONFIG="+filepath.Join(home, "kubeconfig"), "DISPLAY=:0",
		"PATH="+home+":"+os.Getenv("PATH"))
	return c
}

func (c *cluster) command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, c.proa, args...)
	cmd.Env = c.env
	return cmd
}

// run runs a command of proa to its end.
func (c *cluster) run(args ...string) {
	c.Helper()
	if out, err := c.command(context.WithoutCancel(c.Context()), args...).CombinedOutput(); err != nil {
		c.Fatalf("proa %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

// up starts the cluster.
func (c *cluster) up(args ...string) {
	c.Helper()
	c.isUp = true
	c.run(append([]string{"up", "--data-dir", c.data, "--listen", "127.0.0.1:" + c.port, "--name", filepath.Base(c.home), "--no-merge"},
		args...)...)
}

// down stops the cluster, if it is up, and removes what it has left.
func (c *cluster) down() {
	c.Helper()
	if c.isUp {
		c.isUp = false
		c.run("down", "--purge", "--now", "--data-dir", c.data)
	}
	_ = os.Remove(c.login) // it is not there if the script did not begin
}

const (
	// exitDisturbed is the code with which a script ends that failed after Chromium had given up a request because the network of the
	// machine changed, as tests of other packages change it (RUN_AGAIN in browser.mjs).
	exitDisturbed = 75
	// maxRuns is how many times a script may run when all runs are disturbed.
	maxRuns = 3
)

// TestDisturbed checks that a script ends with exitDisturbed only if the network changed in the step that failed.
func TestDisturbed(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("it needs a browser")
	}
	chromium, node, packages := findBrowser(t), find(t, "node"), modules(t)
	for step, want := range map[string]int{"": 1, "first": 1, "second": exitDisturbed} {
		cmd := exec.CommandContext(t.Context(), node, "disturbed.mjs")
		cmd.Env = append(os.Environ(), "HOME="+t.TempDir(), "UI_MODULES="+packages, "UI_CHROMIUM="+chromium, "UI_DISTURBED="+step)
		out, err := cmd.CombinedOutput()
		if _, ended := errors.AsType[*exec.ExitError](err); !ended || cmd.ProcessState.ExitCode() != want {
			t.Errorf("disturbed in step %q: %v, want code %d\n%s", step, err, want, out)
		}
		if got := failureOf(string(out)); !strings.HasPrefix(got, "FAILED: second: ") || strings.Contains(got, "passed: ") {
			t.Errorf("disturbed in step %q: the failure is %q", step, got)
		}
	}
}

// failureOf returns what a script has printed about the step that failed.
func failureOf(output string) string {
	return output[max(0, strings.Index(output, "FAILED: ")):]
}

// playUndisturbed starts a cluster and runs a script, and does so again if the script failed and was disturbed.
func (c *cluster) playUndisturbed(start func(), script string, env ...string) {
	c.Helper()
	for run := 1; ; run++ {
		start()
		code, printed := c.play(script, env...)
		switch {
		case code == 0:
			return
		case code != exitDisturbed || run == maxRuns:
			c.Fatalf("%s ended with code %d in run %d", script, code, run)
		}
		c.Logf("The network of the machine changed. %s runs again. Run %d failed:\n%s", script, run, failureOf(printed))
		c.down()
	}
}

// play opens the dashboard, runs a script in a browser and returns the code with which the script ended, and what it printed.
func (c *cluster) play(script string, env ...string) (code int, printed string) {
	c.Helper()
	ctx, stop := context.WithCancel(c.Context())
	dashboard := c.command(ctx, "dashboard", "--data-dir", c.data)
	dashboard.Cancel = func() error { return dashboard.Process.Signal(os.Interrupt) }
	dashboard.WaitDelay = time.Minute
	out := &output{want: regexp.MustCompile(`is at (\S+)\n.*code: (\d{4} \d{4})\n`), found: make(chan []string, 1)}
	found := out.found
	dashboard.Stdout, dashboard.Stderr = out, out
	if err := dashboard.Start(); err != nil {
		c.Fatal(err)
	}
	defer func() {
		stop()
		if err := dashboard.Wait(); err != nil && !dashboard.ProcessState.Success() {
			c.Errorf("proa dashboard did not end well on Ctrl-C: %v\n%s", err, out.text.String())
		}
	}()
	var said []string
	select {
	case said = <-found:
	case <-time.After(2 * time.Minute):
		c.Fatal("proa dashboard did not start")
	}
	for range 6000 { // the program that opens the page runs beside the command
		if _, err := os.Stat(c.login); err == nil {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	cmd := exec.CommandContext(c.Context(), c.node, script)
	cmd.Env = append(os.Environ(), "HOME="+c.home, "UI_MODULES="+c.packages, "UI_ADDRESS="+said[1],
		"UI_CODE="+strings.ReplaceAll(said[2], " ", ""), "UI_SERVER=https://127.0.0.1:"+c.port, "UI_CHROMIUM="+c.chromium, "UI_LOGIN_FILE="+c.login)
	cmd.Env = append(cmd.Env, env...)
	result, err := cmd.CombinedOutput()
	c.Logf("%s", result)
	if err != nil && cmd.ProcessState == nil {
		c.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), string(result)
}
