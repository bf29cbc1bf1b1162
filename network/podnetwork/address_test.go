package podnetwork

import (
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"time"

	"proa.dev/network/cni"
)

func prefixes(list ...string) (out []netip.Prefix) {
	for _, s := range list {
		out = append(out, netip.MustParsePrefix(s))
	}
	return out
}

func discardLogger() *slog.Logger { return slog.New(slog.DiscardHandler) }

func TestAddresses(t *testing.T) {
	for _, c := range []struct {
		prefix string
		n      uint32
		want   string
	}{
		{"10.1.0.0/24", 1, "10.1.0.1"},
		{"10.1.0.0/16", 256, "10.1.1.0"},
		{"10.1.2.128/25", 5, "10.1.2.133"},
		{"fd00:1::/64", 2, "fd00:1::2"},
		{"fd00:1::ff00/112", 1 << 15, "fd00:1::8000"},
		{"fd00:1::/120", 254, "fd00:1::fe"},
	} {
		p := netip.MustParsePrefix(c.prefix).Masked()
		if got := address(p, c.n); got.String() != c.want {
			t.Errorf("number %d of %s: got %s, want %s", c.n, c.prefix, got, c.want)
		}
		if got := number(p, address(p, c.n)); got != c.n {
			t.Errorf("%s is number %d of %s, not %d", address(p, c.n), c.n, c.prefix, got)
		}
	}
}

func TestPoolUsesAddressesInTurn(t *testing.T) {
	p, err := openPool(t.TempDir(), prefixes("10.1.0.0/29", "fd00::/64"), discardLogger())
	if err != nil {
		t.Fatal(err)
	}
	reserve := func(id string) *record {
		r := &record{ContainerID: id, IfName: "eth0", Since: time.Now()}
		if err := p.reserve(r); err != nil {
			return &record{Addresses: []netip.Addr{{}}}
		}
		return r
	}
	var got []string
	first := reserve("a")
	got = append(got, fmt.Sprint(first.Addresses), reserve("b").Addresses[0].String())
	if err := p.release(first); err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"c", "d", "e", "f", "g"} {
		got = append(got, reserve(id).Addresses[0].String())
	}
	want := "[[10.1.0.2 fd00::2] 10.1.0.3 10.1.0.4 10.1.0.5 10.1.0.6 10.1.0.2 invalid IP]"
	if fmt.Sprint(got) != want {
		t.Errorf("got %v, want %s", got, want)
	}
	// Another process reads the same state.
	q, err := openPool(p.dir, prefixes("10.1.0.0/29", "fd00::/64"), discardLogger())
	if err != nil {
		t.Fatal(err)
	}
	if len(q.all()) != 5 || q.get(cni.Attachment{ContainerID: "f", IfName: "eth0"}).Addresses[1] != netip.MustParseAddr("fd00::2") {
		t.Errorf("a second process sees %d records", len(q.all()))
	}
	if q.next != 3 {
		t.Errorf("it would continue at %d, which is not after the newest", q.next)
	}
}

func TestOpenPoolWithDamagedFiles(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"10.1.0.2":     `{"containerID":"a","ifName":"eth0","hostInterface":"veth1","addresses":["10.1.0.2"]}`,
		"10.1.0.3":     `{"containerID":"b","ifName"`,
		"10.1.0.4":     ``,
		"10.1.0.5":     `{"containerID":"c","ifName":"eth0","hostInterface":"veth2","addresses":["10.1.0.5"],"deleted":true}`,
		"10.1.0.6.new": `{"containerID":"d","ifName":"eth0","hostInterface":"veth3","addresses":["10.1.0.6"]}`,
		"10.9.0.7":     `{"containerID":"e","ifName":"eth0","hostInterface":"veth4","addresses":["10.9.0.7"]}`,
		"10.1.0.1":     `{"containerID":"f","ifName":"eth0","hostInterface":"veth5","addresses":["10.1.0.1"]}`,
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	p, err := openPool(dir, prefixes("10.1.0.0/24"), discardLogger())
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, r := range p.all() {
		got = append(got, fmt.Sprintf("%s %s %v", r.ContainerID, r.Addresses[0], p.get(r.key()) != nil))
	}
	if want := "[a 10.1.0.2 true c 10.1.0.5 false f 10.1.0.1 true e 10.9.0.7 true]"; fmt.Sprint(got) != want {
		t.Errorf("got %v, want %s", got, want)
	}
	remaining, _ := os.ReadDir(dir)
	if len(remaining) != 4 {
		t.Errorf("%d files are left", len(remaining))
	}
}

func TestPoolOfTooSmallNetwork(t *testing.T) {
	if _, err := newPool("", prefixes("10.1.0.0/31")); err == nil {
		t.Error("a network without addresses for Pods was accepted")
	}
}

func TestRecordIsStale(t *testing.T) {
	now := time.Now()
	for _, c := range []struct {
		name    string
		age     time.Duration
		started time.Duration
		live    map[string]bool
		link    bool
		want    bool
	}{
		{"being added", time.Second, time.Minute, nil, false, false},
		{"not finished by this process", time.Hour, 2 * time.Hour, nil, false, true},
		{"left by another process", time.Second, 0, nil, false, true},
		{"has its interface, the runtime is not asked", time.Hour, 0, nil, true, false},
		{"known, without interface", time.Hour, 0, map[string]bool{"a": true}, false, false},
		{"unknown, old", time.Hour, 0, map[string]bool{}, true, true},
		{"unknown, young", time.Second, 0, map[string]bool{}, true, false},
		{"known", time.Hour, 0, map[string]bool{"a": true}, true, false},
	} {
		r := &record{ContainerID: "a", Since: now.Add(-c.age)}
		if got := r.isStale(now.Add(-c.started), now, c.live, c.link); got != c.want {
			t.Errorf("%s: got %v", c.name, got)
		}
	}
}

func TestHostPortOverlaps(t *testing.T) {
	port := func(proto, ip string, n uint16) hostPort {
		h := hostPort{Protocol: proto, HostPort: n}
		if ip != "" {
			h.HostIP = netip.MustParseAddr(ip)
		}
		return h
	}
	for _, c := range []struct {
		a, b hostPort
		want bool
	}{
		{port("tcp", "", 80), port("tcp", "", 80), true},
		{port("tcp", "", 80), port("udp", "", 80), false},
		{port("tcp", "", 80), port("tcp", "", 81), false},
		{port("tcp", "0.0.0.0", 80), port("tcp", "", 80), true},
		{port("tcp", "0.0.0.0", 80), port("tcp", "::", 80), false},
		{port("tcp", "10.0.0.1", 80), port("tcp", "10.0.0.2", 80), false},
		{port("tcp", "10.0.0.1", 80), port("tcp", "10.0.0.1", 80), true},
		{port("tcp", "10.0.0.1", 80), port("tcp", "", 80), false},
	} {
		if c.a.overlaps(c.b) != c.want || c.b.overlaps(c.a) != c.want {
			t.Errorf("%+v and %+v: want %v", c.a, c.b, c.want)
		}
	}
}

func TestNewBucket(t *testing.T) {
	for _, c := range []struct{ rate, burst uint64 }{{200, 0}, {1 << 20, 1 << 31}, {200, 1 << 40}, {1 << 50, 1 << 50}, {1 << 33, 1}} {
		b, ok, err := newBucket(c.rate, c.burst, 1500)
		if err != nil || !ok || b.rate != c.rate/8 || b.burst < 1500 || b.limit < b.burst || b.buffer == 0 {
			t.Errorf("%d bits a second, %d at once: %+v, %v", c.rate, c.burst, b, err)
		}
	}
	if _, _, err := newBucket(8, 0, 1500); err == nil {
		t.Error("a byte a second is accepted")
	}
	if _, ok, err := newBucket(0, 0, 1500); ok || err != nil {
		t.Error("a rate of 0 is a limit")
	}
}

func TestSocketPathIsShort(t *testing.T) {
	long := "/var/lib/" + string(make([]byte, 200))
	if got := socketFor(long); len(got) > 100 || got == socketFor(long+"x") {
		t.Errorf("%q", got)
	}
	if got := socketFor("/var/lib/proa/network"); got != "/var/lib/proa/network/cni.sock" {
		t.Error(got)
	}
}
