// Package ui tests the dashboard in a real browser, against the built binary. It needs node, npm and Chromium, and skips without them.
package ui

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

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

func TestDashboard(t *testing.T) {
	if testing.Short() {
		t.Skip("it needs a browser")
	}
	chromium := find(t, "chromium", "chromium-browser", "google-chrome")
	node := find(t, "node")
	proa := program(t)
	packages := modules(t)

	home := t.TempDir()
	data := filepath.Join(home, "data")
	port := ports.Strings(t, 1)[0]
	// A program in place of the desktop's, which keeps the page that it should open.
	login := filepath.Join(home, "login.html")
	opener := "#!/bin/sh\ncp \"$1\" " + login + ".part && mv " + login + ".part " + login + "\n"
	tools := filepath.Join(home, "tools")
	if err := os.MkdirAll(tools, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(tools, "xdg-open"), []byte(opener), 0o755); err != nil { //nolint:gosec // G306: it is a program
		t.Fatal(err)
	}
	env := append(os.Environ(), "HOME="+home, "KUBECONFIG="+filepath.Join(home, "kubeconfig"), "DISPLAY=:0", "PATH="+tools+":"+os.Getenv("PATH"))
	run := func(ctx context.Context, args ...string) {
		cmd := exec.CommandContext(ctx, proa, args...)
		cmd.Env = env
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("proa %s: %v\n%s", strings.Join(args, " "), err, out)
		}
	}
	t.Cleanup(func() { run(context.WithoutCancel(t.Context()), "down", "--purge", "--data-dir", data) })
	run(t.Context(), "up", "--simulate", "3", "--data-dir", data, "--listen", "127.0.0.1:"+port, "--name", "ui-test", "--no-merge")

	ctx, stop := context.WithCancel(t.Context())
	dashboard := exec.CommandContext(ctx, proa, "dashboard", "--data-dir", data)
	dashboard.Cancel = func() error { return dashboard.Process.Signal(os.Interrupt) }
	dashboard.WaitDelay = 10 * time.Second
	dashboard.Env = env
	out := &output{want: regexp.MustCompile(`is at (\S+)\n.*code: (\d{4} \d{4})\n`), found: make(chan []string, 1)}
	found := out.found
	dashboard.Stdout, dashboard.Stderr = out, out
	if err := dashboard.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		stop()
		if err := dashboard.Wait(); err != nil && !dashboard.ProcessState.Success() {
			t.Errorf("proa dashboard did not end well on Ctrl-C: %v\n%s", err, out.text.String())
		}
	})
	var said []string
	select {
	case said = <-found:
	case <-time.After(30 * time.Second):
		t.Fatalf("proa dashboard did not start:\n%s", out.text.String())
	}
	for range 1000 { // the program that opens the page runs beside the command
		if _, err := os.Stat(login); err == nil {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}

	script := exec.CommandContext(t.Context(), node, "page.mjs")
	script.Env = append(os.Environ(), "HOME="+home, "UI_MODULES="+packages, "UI_ADDRESS="+said[1], "UI_CODE="+strings.ReplaceAll(said[2], " ", ""),
		"UI_SERVER=https://127.0.0.1:"+port, "UI_CHROMIUM="+chromium, "UI_LOGIN_FILE="+login)
	result, err := script.CombinedOutput()
	t.Logf("%s", result)
	if err != nil {
		t.Fatal(err)
	}
}
