package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
)

// play runs a command to its end, and returns its output and exit code.
func play(t *testing.T, args ...string) string {
	t.Helper()
	var out bytes.Buffer
	if err := run(t.Context(), &out, args); err != nil {
		fmt.Fprint(&out, err)
	}
	return strings.TrimSpace(out.String())
}

func TestCommands(t *testing.T) {
	dir := t.TempDir()
	starts, note := filepath.Join(dir, "starts"), filepath.Join(dir, "note")
	for _, test := range []struct{ line, want string }{
		{"exit -code 3", "exit code 3"},
		{"exit -after 1ms", "exit code 0"},
		{"alloc -mem 5Ki -step 4Ki -done", "taken 4096\ntaken 5120"},
		{"alloc -mem 5Zi", `"5Zi" is not a number of bytes up to 1Ti, like 64Mi`},
		{"spin -cpu 0.1 -for 1ms", ""},
		{"spin -cpu 0", "-cpu must be above 0 and at most 64"},
		{"message -path " + note + " -text abc -repeat 2 -print said -code 4", "said\nexit code 4"},
		{"cat " + note, "abcabc"},
		{"flaky -file " + starts + " -fail 2 -code 7 -done", "start 1\nexit code 7"},
		{"flaky -file " + starts + " -fail 2 -code 7 -done", "start 2\nexit code 7"},
		{"flaky -file " + starts + " -fail 2 -code 7 -done", "start 3"},
		{"flaky -file " + note + " -fail 2 -done", note + ` does not hold a number: strconv.Atoi: parsing "0abcabc": invalid syntax`},
		{"log -lines 3 -width 10 -done", "line 1 xxx\nline 2 xxx\nline 3 xxx"},
		{"fill -path " + dir + " -size 3Mi -files 2 -done", "written 3145728"},
		{"fill -path " + dir + "/none -size 3Mi -done", "open " + dir + "/none/fill-0: no such file or directory"},
		{"get", "say which URL to get"},
		{"send tcp", "say to whom and what: tcp|udp ADDRESS TEXT"},
		{"echo", "say which port to listen on: -tcp or -udp"},
		{"dance", `"dance" is nothing that this program can do`},
	} {
		if got := play(t, strings.Fields(test.line)...); got != test.want {
			t.Errorf("%s: %q; want %q", test.line, got, test.want)
		}
	}
	info, err := os.Stat(filepath.Join(dir, "fill-1"))
	if err != nil || info.Size() != 3<<19 {
		t.Errorf("fill-1: %v, %v; want half of 3Mi", info, err)
	}
}

func TestSize(t *testing.T) {
	for text, want := range map[string]int64{"0": 0, "12": 12, "1k": 1000, "2Ki": 2048, "3Mi": 3 << 20, "1G": 1e9, "1024Gi": 1 << 40,
		"-1": -1, "Mi": -1, "1.5Mi": -1, "9999999999999": -1, "2000Gi": -1, "": -1} {
		got, err := size(text)
		if err != nil {
			got = -1
		}
		if got != want {
			t.Errorf("%q is %d; want %d", text, got, want)
		}
	}
}

func TestCapabilities(t *testing.T) {
	for mask, want := range map[string]string{
		"0000000000000000": "none", "0000000000000001": "CHOWN", "0000000000003000": "NET_ADMIN NET_RAW",
		"0000010000000000": "CHECKPOINT_RESTORE", "what": "what",
	} {
		if got := capabilities(mask); got != want {
			t.Errorf("%s is %s; want %s", mask, got, want)
		}
	}
}

func TestShow(t *testing.T) {
	t.Setenv("PROA_TOOL_TEST", "yes")
	got := play(t, "show")
	for _, want := range []string{fmt.Sprintf("uid %d euid %d", os.Getuid(), os.Geteuid()), "\nCapEff ", "\nNoNewPrivs ", "\nSeccomp ",
		"\noom_score_adj ", "\ncgroup ", "\nenv PROA_TOOL_TEST=yes"} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is not in\n%s", want, got)
		}
	}
}

func TestSite(t *testing.T) {
	ended := -1
	s := &site{out: io.Discard, exit: func(code int) { ended = code }}
	s.live.Store(true)
	server := httptest.NewServer(s.handler())
	defer server.Close()
	for _, test := range []struct {
		path   string
		status int
		body   string
	}{
		{"/", 200, "hello"},
		{"/none", 404, "404 page not found"},
		{"/live", 200, "live"},
		{"/ready", 503, "not ready"},
		{"/ready?set=on", 200, "ready on"},
		{"/ready", 200, "ready"},
		{"/live?set=off", 200, "live off"},
		{"/live", 503, "not live"},
		{"/live?set=maybe", 400, "set must be on or off"},
		{"/status?code=418", 418, ""},
		{"/status?code=1", 400, ""},
		{"/delay?for=1ms", 200, "waited 1ms"},
		{"/delay?for=x", 400, `time: invalid duration "x"`},
		{"/redirect?to=/live%3Fset%3Don", 200, "live on"},
		{"/exit?code=5", 200, "bye"},
	} {
		resp, err := http.Get(server.URL + test.path)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil || resp.StatusCode != test.status || strings.TrimSpace(string(body)) != test.body {
			t.Errorf("%s: %d %q, %v; want %d %q", test.path, resp.StatusCode, body, err, test.status, test.body)
		}
	}
	if ended != 5 {
		t.Errorf("exit code %d; want 5", ended)
	}
	if got, want := play(t, "get", server.URL+"/ready"), "200 OK\nready"; got != want {
		t.Errorf("get: %q; want %q", got, want)
	}
	if got, want := play(t, "get", "-body", server.URL+"/none"), "404 page not found\nexit code 1"; got != want {
		t.Errorf("get: %q; want %q", got, want)
	}
}

// freePort returns a port that is not in use.
func freePort(t *testing.T, network string) int {
	t.Helper()
	if network == "udp" {
		conn, err := net.ListenPacket("udp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		return conn.LocalAddr().(*net.UDPAddr).Port
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	return listener.Addr().(*net.TCPAddr).Port
}

// runWhile runs a command in the background while do runs.
func runWhile(t *testing.T, args []string, do func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() {
		if err := run(ctx, io.Discard, args); err != nil {
			t.Errorf("%v: %v", args, err)
		}
	})
	do()
	cancel()
	running.Wait()
}

// until repeats a command until it succeeds, because the server may not listen yet.
func until(t *testing.T, want string, args ...string) {
	t.Helper()
	got := ""
	for range 500 {
		if got = play(t, args...); got == want {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Errorf("%v: %q; want %q", args, got, want)
}

func TestEcho(t *testing.T) {
	tcp, udp := freePort(t, "tcp"), freePort(t, "udp")
	runWhile(t, []string{"echo", "-tcp", strconv.Itoa(tcp), "-udp", strconv.Itoa(udp), "-prefix", "you said "}, func() {
		until(t, "you said hi", "send", "tcp", fmt.Sprintf("127.0.0.1:%d", tcp), "hi")
		until(t, "you said ho", "send", "udp", fmt.Sprintf("127.0.0.1:%d", udp), "ho")
	})
}

func TestServe(t *testing.T) {
	port := freePort(t, "tcp")
	runWhile(t, []string{"serve", "-port", strconv.Itoa(port), "-ready-after", "10ms"}, func() {
		until(t, "200 OK\nready", "get", fmt.Sprintf("http://127.0.0.1:%d/ready", port))
	})
}

// TestHealth checks the health service with the gRPC client.
func TestHealth(t *testing.T) {
	for _, test := range []struct {
		flags, service string
		want           string
	}{
		{"", "", "SERVING"},
		{"-service web", "web", "SERVING"},
		{"-service web", "other", "NotFound"},
		{"-down", "", "NOT_SERVING"},
		{"-down-after 1ns", "", "NOT_SERVING"},
	} {
		port := freePort(t, "tcp")
		runWhile(t, append([]string{"health", "-port", strconv.Itoa(port)}, strings.Fields(test.flags)...), func() {
			conn, err := grpc.NewClient(fmt.Sprintf("127.0.0.1:%d", port), grpc.WithTransportCredentials(insecure.NewCredentials()))
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			answer, err := grpc_health_v1.NewHealthClient(conn).Check(t.Context(),
				&grpc_health_v1.HealthCheckRequest{Service: test.service}, grpc.WaitForReady(true))
			got := answer.GetStatus().String()
			if code := status.Code(err); code != codes.OK {
				got = code.String()
			}
			if got != test.want {
				t.Errorf("%q asked for %q: %s, %v; want %s", test.flags, test.service, got, err, test.want)
			}
		})
	}
}

func FuzzReadCheck(f *testing.F) {
	f.Add([]byte{0, 0, 0, 0, 0})
	f.Add([]byte{0, 0, 0, 0, 3, 10, 1, 'a'})
	f.Fuzz(func(t *testing.T, data []byte) {
		service, err := readCheck(bytes.NewReader(data))
		if err == nil && len(service) > 3*len(data) {
			t.Errorf("%q has more in it than %q", service, data)
		}
	})
}

// lines is a writer that sends each line that is written to it to a channel.
type lines chan string

func (l lines) Write(data []byte) (int, error) {
	l <- strings.TrimSpace(string(data))
	return len(data), nil
}

func TestSignals(t *testing.T) {
	out := make(lines, 10)
	var running sync.WaitGroup
	var err error
	running.Go(func() { err = run(t.Context(), out, []string{"signals", "-code", "4"}) })
	for i, want := range []string{"waiting for signals", "signal 10 USR1", "signal 1 HUP", "signal 15 TERM"} {
		got := <-out
		for strings.Contains(got, "CHLD") {
			got = <-out
		}
		if got != want {
			t.Errorf("%q; want %q", got, want)
		}
		if next := []syscall.Signal{syscall.SIGUSR1, syscall.SIGHUP, syscall.SIGTERM}; i < len(next) {
			if err := syscall.Kill(os.Getpid(), next[i]); err != nil {
				t.Fatal(err)
			}
		}
	}
	running.Wait()
	var code exitCode
	if !errors.As(err, &code) || code != 4 {
		t.Errorf("%v; want exit code 4", err)
	}
}
