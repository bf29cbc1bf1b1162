package cni

import (
	"bytes"
	"encoding/json"
	"errors"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
)

// runPlugin runs the CNI plugin with the given environment and standard input, and returns its exit code and output.
func runPlugin(env map[string]string, in string) (int, string) {
	var out bytes.Buffer
	code := Main(func(k string) string { return env[k] }, strings.NewReader(in), &out)
	return code, strings.TrimSpace(out.String())
}

func TestMainWithoutAgent(t *testing.T) {
	add := map[string]string{"CNI_COMMAND": "ADD", "CNI_CONTAINERID": "a", "CNI_NETNS": "/proc/self/ns/net", "CNI_IFNAME": "eth0"}
	nowhere := filepath.Join(t.TempDir(), "none.sock")
	for _, c := range []struct {
		name string
		env  map[string]string
		in   string
		code int
		want string
	}{
		{"version", map[string]string{"CNI_COMMAND": "VERSION"}, `{"cniVersion":"1.0.0"}`, 0,
			`{"cniVersion":"1.0.0","supportedVersions":["0.3.0","0.3.1","0.4.0","1.0.0","1.1.0"]}`},
		{"newer version than supported", map[string]string{"CNI_COMMAND": "VERSION"}, `{"cniVersion":"9.0.0"}`, 0,
			`{"cniVersion":"1.1.0",`},
		{"no command", nil, `{}`, 1, `"code":4,"msg":"CNI_COMMAND is not set`},
		{"unknown command", map[string]string{"CNI_COMMAND": "FLY"}, `{"cniVersion":"1.1.0"}`, 1,
			`"code":4,"msg":"unknown CNI_COMMAND: FLY"`},
		{"not JSON", add, `no`, 1, `"code":6`},
		{"version too new", add, `{"cniVersion":"2.0.0"}`, 1, `"code":1`},
		{"no container", map[string]string{"CNI_COMMAND": "ADD"}, `{"cniVersion":"1.1.0"}`, 1,
			`"code":4,"msg":"required env variables [CNI_CONTAINERID] missing"`},
		{"no socket", add, `{"cniVersion":"1.1.0","name":"x"}`, 1, `"code":7`},
		{"no agent listens", add, `{"cniVersion":"1.0.0","socket":"` + nowhere + `"}`, 1, `{"cniVersion":"1.0.0","code":11`},
		{"status", map[string]string{"CNI_COMMAND": "STATUS"}, `{"cniVersion":"1.1.0","socket":"` + nowhere + `"}`, 1, `"code":50`},
		{"loopback", add, `{"cniVersion":"1.0.0","type":"loopback"}`, 0, `"name":"lo"`},
		{"loopback is deleted", map[string]string{"CNI_COMMAND": "DEL", "CNI_CONTAINERID": "a", "CNI_IFNAME": "lo"},
			`{"cniVersion":"1.0.0","type":"loopback"}`, 0, ``},
	} {
		code, out := runPlugin(c.env, c.in)
		if code != c.code || !strings.Contains(out, c.want) {
			t.Errorf("%s: %d %s\nwant %d %s", c.name, code, out, c.code, c.want)
		}
	}
}

func TestEncodeResult(t *testing.T) {
	r := Result{
		Interfaces: []Interface{{Name: "eth0", MTU: 1500, Sandbox: "/ns"}},
		Addresses: []Address{
			{Address: netip.MustParsePrefix("10.0.0.2/32"), Gateway: netip.MustParseAddr("10.0.0.1")},
			{Address: netip.MustParsePrefix("fd00::2/128")}},
		Routes: []Route{{Dst: netip.MustParsePrefix("0.0.0.0/0"), GW: netip.MustParseAddr("10.0.0.1")}},
	}
	for version, want := range map[string]string{
		"1.1.0": `{"cniVersion":"1.1.0","interfaces":[{"name":"eth0","mtu":1500,"sandbox":"/ns"}],"ips":[{"address":"10.0.0.2/32","gateway":"10.0.0.1","interface":0},{"address":"fd00::2/128","interface":0}],"routes":[{"dst":"0.0.0.0/0","gw":"10.0.0.1"}],"dns":{}}`,
		"0.4.0": `{"cniVersion":"0.4.0","interfaces":[{"name":"eth0","sandbox":"/ns"}],"ips":[{"version":"4","address":"10.0.0.2/32","gateway":"10.0.0.1","interface":0},{"version":"6","address":"fd00::2/128","interface":0}],"routes":[{"dst":"0.0.0.0/0","gw":"10.0.0.1"}],"dns":{}}`,
	} {
		got, err := r.Encode(version)
		if err != nil || string(got) != want {
			t.Errorf("%s: %v\ngot  %s\nwant %s", version, err, got, want)
		}
	}
}

func FuzzParseConfig(f *testing.F) {
	f.Add([]byte(`{"cniVersion":"1.1.0","runtimeConfig":{"portMappings":[{"hostPort":1,"protocol":"tcp"}],"bandwidth":{"ingressRate":1}}}`))
	f.Add([]byte(`{"cni.dev/valid-attachments":[{"containerID":"a","ifname":"b"}]}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		c, err := ParseConfig(raw)
		if err == nil && !json.Valid(raw) {
			t.Errorf("accepted %q as %+v", raw, c)
		}
	})
}

// FuzzReadResponse checks that every response of an agent is a result or an error for the runtime.
func FuzzReadResponse(f *testing.F) {
	f.Add([]byte(`{"result":{"cniVersion":"1.1.0"}}`))
	f.Add([]byte(`{"error":{"code":11,"msg":"later"}}`))
	f.Add([]byte(`{"error":{"code":11}}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		result, err := read(bytes.NewReader(raw))
		if err == nil && len(result) > 0 && !json.Valid(result) {
			t.Errorf("the runtime gets %q, which is not JSON", result)
		}
		if err != nil && err.Error() == "" {
			t.Error("an error without a message")
		}
	})
}

// FuzzReceiveRequest checks that malformed requests to the socket of the agent get an error with a code and a message.
func FuzzReceiveRequest(f *testing.F) {
	f.Add([]byte(`x{"command":"ADD","containerID":"a","netNS":"/n","ifName":"eth0","config":{"cniVersion":"1.1.0"}}`))
	f.Add([]byte(`x{"command":"GC","config":{}}`))
	f.Add([]byte(`x`))
	f.Add([]byte(``))
	f.Fuzz(func(t *testing.T, raw []byte) {
		pair, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		ends := make([]*net.UnixConn, len(pair))
		for i, fd := range pair {
			file := os.NewFile(uintptr(fd), "end")
			conn, err := net.FileConn(file)
			if err := errors.Join(err, file.Close()); err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			ends[i] = conn.(*net.UnixConn)
		}
		var wg sync.WaitGroup
		wg.Go(func() {
			_, _ = ends[0].Write(raw) // the other end may have read enough
			_ = ends[0].CloseWrite()
		})
		req, conf, netns, err := receive(ends[1])
		_ = ends[1].Close()
		wg.Wait()
		if netns != nil {
			t.Error("received a network namespace that was not sent")
		}
		if err == nil && (req == nil || conf == nil || req.check() != nil) {
			t.Errorf("%q is accepted as %+v with %+v", raw, req, conf)
		}
		if err != nil && err.Error() == "" {
			t.Error("an error without a message")
		}
	})
}
