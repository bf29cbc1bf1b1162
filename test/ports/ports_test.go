package ports

import (
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// TestReserve checks that no port is reserved twice, neither by this process nor by others at the same time, and that each port can
// be listened on.
func TestReserve(t *testing.T) {
	t.Parallel()
	if os.Getenv("PROA_PORTS_CHILD") != "" {
		os.Stdout.WriteString("ports:" + strings.Join(Strings(t, 1000), " ") + "\n")
		_, _ = os.Stdin.Read(make([]byte, 1)) // until the parent has read all ports
		return
	}
	seen := map[string]bool{}
	for _, port := range Strings(t, 1000) {
		seen[port] = true
	}
	for range 3 {
		for _, port := range childPorts(t) {
			if seen[port] {
				t.Errorf("port %s was given twice", port)
			}
			seen[port] = true
		}
	}
	if len(seen) != 4000 {
		t.Errorf("%d different ports, want 4000", len(seen))
	}
	l, err := net.Listen("tcp", Address(t))
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
}

// childPorts returns the ports that another process has reserved, which it keeps until the test ends.
func childPorts(t *testing.T) []string {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^TestReserve$")
	cmd.Env = append(os.Environ(), "PROA_PORTS_CHILD=1")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = in.Close()
		if err := cmd.Wait(); err != nil {
			t.Error(err)
		}
	})
	var text strings.Builder
	buffer := make([]byte, 4096)
	for !strings.Contains(text.String(), "\n") {
		n, err := out.Read(buffer)
		if err != nil {
			t.Fatal(err)
		}
		text.Write(buffer[:n])
	}
	line, _, _ := strings.Cut(text.String(), "\n")
	return strings.Fields(strings.TrimPrefix(line, "ports:"))
}
