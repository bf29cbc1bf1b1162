package e2e

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"proa.dev/test/program"
)

// cniPlugin is a small CNI plugin with a bridge; the names of folders are the addresses in use.
const cniPlugin = `#!/bin/sh
set -e
case "$CNI_COMMAND" in
VERSION) echo '{"cniVersion":"1.0.0","supportedVersions":["1.0.0"]}' ;;
ADD)
	n=2
	until mkdir "STATE/$n" 2>/dev/null; do n=$((n+1)); done
	echo "$CNI_CONTAINERID" > "STATE/$n/id"
	ip link add "LINK-$n" type veth peer name "$CNI_IFNAME" netns "$CNI_NETNS"
	ip link set "LINK-$n" master LINK up
	nsenter --net="$CNI_NETNS" ip link set lo up
	nsenter --net="$CNI_NETNS" ip addr add "RANGE.$n/24" dev "$CNI_IFNAME"
	nsenter --net="$CNI_NETNS" ip link set "$CNI_IFNAME" up
	nsenter --net="$CNI_NETNS" ip route add default via RANGE.1
	printf '{"cniVersion":"1.0.0","interfaces":[{"name":"%s","sandbox":"%s"}],"ips":[{"address":"RANGE.%s/24","gateway":"RANGE.1","interface":0}]}' "$CNI_IFNAME" "$CNI_NETNS" "$n"
	;;
DEL)
	for f in $(grep -lx "$CNI_CONTAINERID" STATE/*/id); do
		n=$(basename "$(dirname "$f")")
		ip link del "LINK-$n" 2>/dev/null || true
		rm -r "STATE/$n"
	done
	;;
esac
`

// TestForeignNetwork runs Pods whose network is made by a CNI plugin other than that of proa.
func TestForeignNetwork(t *testing.T) {
	bins := needNode(t)
	for _, tool := range []string{"ip", "nsenter", "curl"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("%s is not here: the network is made with it", tool)
		}
	}
	n := rand.IntN(256)
	dir, link, network := t.TempDir(), fmt.Sprintf("pf%d", n), fmt.Sprintf("198.18.%d", n)
	state := filepath.Join(dir, "state")
	text := cniPlugin
	for word, value := range map[string]string{"STATE": state, "LINK": link, "RANGE": network} {
		text = strings.ReplaceAll(text, word, value)
	}
	for path, content := range map[string]string{
		"bin/testnet":      text,
		"conf/10.conflist": `{"cniVersion":"1.0.0","name":"testnet","plugins":[{"type":"testnet"}]}`,
	} {
		path = filepath.Join(dir, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := program.Write(path, []byte(content)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(state, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"link", "add", link, "type", "bridge"}, {"addr", "add", network + ".1/24", "dev", link},
		{"link", "set", link, "up"}} {
		if out, err := exec.Command("ip", args...).CombinedOutput(); err != nil {
			t.Fatalf("ip %v: %v\n%s", args, err, out)
		}
	}
	t.Cleanup(func() { _ = exec.Command("ip", "link", "del", link).Run() })
	// IP forwarding is up to the plugin that makes the network.
	const forward = "/proc/sys/net/ipv4/ip_forward"
	before, err := os.ReadFile(forward)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(forward, []byte("1"), 0); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.WriteFile(forward, before, 0) })
	m := newMachine(t, bins, "--cni-conf-dir", filepath.Join(dir, "conf"), "--cni-bin-dir", filepath.Join(dir, "bin"), "--proxy-healthz",
		"off")
	m.up()
	m.load(archives(t, "tool", "busybox"))
	m.script(t, "testdata/foreign/network.txt", map[string]string{"FOREIGN": network, "STATE": state}).run()
}
