package conntrack

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

const tcp, udp = unix.IPPROTO_TCP, unix.IPPROTO_UDP

// testEntry describes an entry of the conntrack table.
type testEntry struct {
	protocol  uint8
	from, to  string
	replyFrom string // where replies come from; to, if empty
	zone      uint16
	state     uint8
	answered  bool
}

// attributes returns the netlink attributes of the entry.
func (k testEntry) attributes() []byte {
	direction := func(kind uint16, from, to netip.AddrPort) []byte {
		fromKind, toKind := uint16(attrFrom4), uint16(attrTo4)
		if from.Addr().Is6() {
			fromKind, toKind = attrFrom6, attrTo6
		}
		addresses := appendAttribute(appendAttribute(nil, fromKind, from.Addr().AsSlice()...), toKind, to.Addr().AsSlice()...)
		ports := appendAttribute(nil, attrProtocol, k.protocol)
		ports = appendAttribute(ports, attrFromPort, binary.BigEndian.AppendUint16(nil, from.Port())...)
		ports = appendAttribute(ports, attrToPort, binary.BigEndian.AppendUint16(nil, to.Port())...)
		return appendNested(nil, kind, appendNested(appendNested(nil, attrAddresses, addresses), attrPorts, ports))
	}
	from, to := netip.MustParseAddrPort(k.from), netip.MustParseAddrPort(k.to)
	replySource := to
	if k.replyFrom != "" {
		replySource = netip.MustParseAddrPort(k.replyFrom)
	}
	b := append(direction(attrAsked, from, to), direction(attrAnswered, replySource, from)...)
	const confirmed, attrTimeout = 1 << 3, 7
	status := uint32(confirmed)
	if k.answered {
		status |= answered
	}
	b = appendAttribute(b, attrStatus, binary.BigEndian.AppendUint32(nil, status)...)
	b = appendAttribute(b, attrTimeout, 0, 0, 2, 0)
	if k.state != 0 {
		b = appendNested(b, attrState, appendNested(nil, attrTCP, appendAttribute(nil, attrTCPState, k.state)))
	}
	if k.zone != 0 {
		b = appendAttribute(b, attrZone, binary.BigEndian.AppendUint16(nil, k.zone)...)
	}
	return b
}

func (k testEntry) family() uint8 { return Filter{Six: strings.HasPrefix(k.from, "[")}.family() }

func (k testEntry) message() []byte { return append([]byte{k.family(), 0, 0, 0}, k.attributes()...) }

func (f *Flow) String() string {
	return fmt.Sprintf("%d %v>%v %v>%v state %d", f.Protocol, f.Asked.From, f.Asked.To, f.Answered.From, f.Answered.To, f.State)
}

func TestReadFlow(t *testing.T) {
	for want, k := range map[string]testEntry{
		"17 10.0.0.1:1234>10.96.0.10:53 10.0.0.2:5353>10.0.0.1:1234 state 0": {protocol: udp, from: "10.0.0.1:1234",
			to: "10.96.0.10:53", replyFrom: "10.0.0.2:5353"},
		"6 [fd00::1]:1234>[fd00::10]:80 [fd00::10]:80>[fd00::1]:1234 state 3": {protocol: tcp, from: "[fd00::1]:1234",
			to: "[fd00::10]:80", state: 3, answered: true},
		"6 10.0.0.1:40000>10.96.0.10:80 198.51.100.9:8080>10.0.0.1:40000 state 1":        {protocol: tcp, from: "10.0.0.1:40000", to: "10.96.0.10:80", replyFrom: "198.51.100.9:8080", state: 1, zone: 7},
		"132 10.0.0.1:40000>10.96.0.10:80 10.96.0.10:80>10.0.0.1:40000 state 0":          {protocol: unix.IPPROTO_SCTP, from: "10.0.0.1:40000", to: "10.96.0.10:80"},
		"17 [::ffff:10.0.0.1]:1>[fd00::10]:53 [fd00::10]:53>[::ffff:10.0.0.1]:1 state 0": {protocol: udp, from: "[::ffff:10.0.0.1]:1", to: "[fd00::10]:53"},
	} {
		var f Flow
		if !f.read(k.message()) || f.String() != want {
			t.Errorf("read  %v\nwant %s", &f, want)
		}
		if got := f.status&answered != 0; got != k.answered {
			t.Errorf("%s: answered %v", want, got)
		}
	}
}

// TestReadFlowResetsMissingAttributes checks that missing attributes do not keep the values of the message before.
func TestReadFlowResetsMissingAttributes(t *testing.T) {
	var f Flow
	f.read(testEntry{protocol: tcp, from: "10.0.0.1:1", to: "10.0.0.2:2", state: 1, zone: 7, answered: true}.message())
	f.read(testEntry{protocol: udp, from: "10.0.0.3:3", to: "10.0.0.4:4"}.message())
	if f.State != 0 || f.status&answered != 0 || f.zone != nil {
		t.Errorf("the second flow keeps values of the first: %v, status %x, zone %x", &f, f.status, f.zone)
	}
}

// TestReadFlowTruncated checks that of a truncated message either the whole original direction is read or nothing: the kernel
// would take a deletion without it for one of all entries.
func TestReadFlowTruncated(t *testing.T) {
	complete := testEntry{protocol: tcp, from: "10.0.0.1:1", to: "10.0.0.2:2", state: 1, zone: 7}.message()
	var want, f Flow
	want.read(complete)
	for n := range complete {
		if truncated := slices.Clip(complete[:n]); f.read(truncated) &&
			(f.Asked != want.Asked || f.Protocol != want.Protocol || len(f.tuple) != len(want.tuple)) {
			t.Errorf("%d bytes are read as %v, tuple %x", n, &f, f.tuple)
		}
	}
	family := []byte{unix.AF_INET, 0, 0, 0}
	for what, b := range map[string][]byte{
		"nothing":      family,
		"only an ID":   appendAttribute(family, attrID, 0, 0, 0, 1),
		"no addresses": appendNested(family, attrAsked, nil),
		"one address":  appendNested(family, attrAsked, appendNested(nil, attrAddresses, appendAttribute(nil, attrFrom4, 10, 0, 0, 1))),
		"a truncated address": appendNested(family, attrAsked,
			appendNested(nil, attrAddresses, appendAttribute(appendAttribute(nil, attrFrom4, 10, 0), attrTo4, 10, 0, 0, 1))),
		"only the reply direction": append(slices.Clone(family),
			testEntry{protocol: tcp, from: "10.0.0.1:1", to: "10.0.0.2:2"}.attributes()[52:]...),
		"a wrong length": append(slices.Clone(family), 3, 0, attrAsked, 0),
	} {
		if f.read(b) {
			t.Errorf("%s: read %v", what, &f)
		}
	}
}

// TestReadFlowDoesNotAllocate checks that parsing entries does not allocate, because a pass parses very many.
func TestReadFlowDoesNotAllocate(t *testing.T) {
	var f Flow
	four := testEntry{protocol: tcp, from: "10.0.0.1:1", to: "10.0.0.2:2", state: 1}.message()
	six := testEntry{protocol: udp, from: "[fd00::1]:1", to: "[fd00::2]:2"}.message()
	filter := Filter{Protocol: tcp, Unanswered: true}
	if n := testing.AllocsPerRun(100, func() {
		_ = f.read(four) && filter.has(&f)
		_ = f.read(six) && filter.has(&f)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// formatAttributes formats netlink attributes as type=value, parsed by another library.
func formatAttributes(t *testing.T, b []byte) string {
	t.Helper()
	list, err := nl.ParseRouteAttr(b)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, a := range list {
		kind := a.Attr.Type &^ unix.NLA_F_NESTED
		if a.Attr.Type&unix.NLA_F_NESTED != 0 {
			out = append(out, fmt.Sprintf("%d{%s}", kind, formatAttributes(t, a.Value)))
		} else {
			out = append(out, fmt.Sprintf("%d=%x", kind, a.Value))
		}
	}
	return strings.Join(out, " ")
}

func TestFilterAttributes(t *testing.T) {
	host := func(n uint32) string { return fmt.Sprintf("%x", binary.NativeEndian.AppendUint32(nil, n)) }
	for _, c := range []struct {
		name   string
		filter Filter
		want   string
	}{
		{"nothing", Filter{}, ""},
		{"nothing of IPv6", Filter{Six: true}, ""},
		{"unanswered", Filter{Unanswered: true}, "3=00000000 26=00000002"},
		{"unanswered TCP", Filter{Protocol: tcp, Unanswered: true}, "3=00000000 26=00000002 1{1{} 2{1=06}} 25{1=" + host(0x08) + "}"},
		{"UDP", Filter{Protocol: udp}, "1{1{} 2{1=11}} 25{1=" + host(0x08) + "}"},
		{"UDP to an address", Filter{Protocol: udp, To: netip.MustParseAddrPort("10.96.0.10:0")},
			"1{1{2=0a60000a} 2{1=11}} 25{1=" + host(0x0a) + "}"},
		{"UDP to an address and port", Filter{Protocol: udp, To: netip.MustParseAddrPort("10.96.0.10:53")},
			"1{1{2=0a60000a} 2{1=11 3=0035}} 25{1=" + host(0x2a) + "}"},
		{
			"UDP to an address and port of IPv6", Filter{Six: true, Protocol: udp, To: netip.MustParseAddrPort("[fd00::a]:53")},
			"1{1{} 2{1=11 3=0035}} 25{1=" + host(0x28) + "}", // some kernels invert the filter by IPv6 address
		},
		{"a port of a node", Filter{Protocol: udp, To: netip.AddrPortFrom(netip.Addr{}, 30053)},
			"1{1{} 2{1=11 3=7565}} 25{1=" + host(0x28) + "}"},
	} {
		if got := formatAttributes(t, c.filter.appendTo(nil)); got != c.want {
			t.Errorf("%s:\n got %s\nwant %s", c.name, got, c.want)
		}
	}
}

// TestFilterMatches checks Filter.has, which filters entries of kernels that do not filter.
func TestFilterMatches(t *testing.T) {
	k := testEntry{protocol: udp, from: "10.0.0.1:1234", to: "10.96.0.10:53", answered: true}
	var f Flow
	f.read(k.message())
	for _, c := range []struct {
		filter Filter
		want   bool
	}{
		{Filter{}, true},
		{Filter{Six: true}, false},
		{Filter{Protocol: udp}, true},
		{Filter{Protocol: tcp}, false},
		{Filter{Unanswered: true}, false},
		{Filter{Protocol: udp, To: netip.MustParseAddrPort("10.96.0.10:53")}, true},
		{Filter{Protocol: udp, To: netip.MustParseAddrPort("10.96.0.10:0")}, true},
		{Filter{Protocol: udp, To: netip.MustParseAddrPort("10.96.0.11:53")}, false},
		{Filter{Protocol: udp, To: netip.MustParseAddrPort("10.96.0.10:54")}, false},
		{Filter{Protocol: udp, To: netip.AddrPortFrom(netip.Addr{}, 54)}, false},
	} {
		if got := c.filter.has(&f); got != c.want {
			t.Errorf("%+v: %v", c.filter, got)
		}
	}
}

// TestRetry checks that an interrupted pass is repeated a few times, and that a refused filter is left out.
func TestRetry(t *testing.T) {
	other := errors.New("other")
	for _, c := range []struct {
		name      string
		filter    Filter
		results   []error
		protocols string // of the filters that were tried
		want      error
	}{
		{"complete", Filter{Protocol: udp}, []error{nil}, "17", nil},
		{"complete at the second attempt", Filter{Protocol: udp}, []error{errInterrupted, nil}, "17 17", nil},
		{"never complete", Filter{Protocol: udp}, []error{errInterrupted, errInterrupted, errInterrupted, nil}, "17 17 17", errInterrupted},
		{"filter refused", Filter{Protocol: udp}, []error{errRefused, nil}, "17 0", nil},
		{"filter refused, then incomplete", Filter{Protocol: udp}, []error{errRefused, errInterrupted, nil}, "17 0 0", nil},
		{"refused without a filter", Filter{Protocol: udp}, []error{errRefused, errRefused, nil}, "17 0", errRefused},
		{"refused at once, without a filter", Filter{}, []error{errRefused, nil}, "0", errRefused},
		{"another error", Filter{Protocol: udp}, []error{other, nil}, "17", other},
	} {
		var protocols []string
		err := retry(c.filter, func(f Filter) error {
			protocols = append(protocols, fmt.Sprint(f.Protocol))
			return c.results[len(protocols)-1]
		})
		if got := strings.Join(protocols, " "); got != c.protocols || !errors.Is(err, c.want) {
			t.Errorf("%s: tried %s, got %v; want %s and %v", c.name, got, err, c.protocols, c.want)
		}
	}
}

// FuzzMessages checks that no message of the kernel breaks the parser, and that every deletion names an entry: one
// without would delete all entries of the node.
func FuzzMessages(f *testing.F) {
	one := testEntry{protocol: tcp, from: "10.0.0.1:40000", to: "10.96.0.10:80", replyFrom: "10.0.0.2:8080", state: 1, zone: 7}
	two := testEntry{protocol: udp, from: "[fd00::1]:1234", to: "[fd00::10]:53", answered: true}
	var seed []byte
	for i, k := range []testEntry{one, two} {
		seed = request{messageFlow, unix.NLM_F_MULTI, uint32(i), k.family(),
			func(b []byte) []byte { return append(b, k.attributes()...) }}.appendTo(seed)
	}
	f.Add(seed)
	f.Add(seed[:len(seed)-3])
	f.Add(request{unix.NLMSG_DONE, 0, 1, 0, func(b []byte) []byte { return b }}.appendTo(seed))
	f.Fuzz(func(t *testing.T, b []byte) {
		var flow, again Flow
		for m := range messages(b) {
			_ = m.fault()
			if !flow.read(m.body) {
				continue
			}
			name := flow.appendName([]byte{0, 0, 0, 0})
			if !again.read(name) {
				t.Fatalf("%v has no name: %x", &flow, name)
			}
			if again.Asked != flow.Asked || again.Protocol != flow.Protocol || len(name)%4 != 0 {
				t.Fatalf("the name of %v is that of %v: %x", &flow, &again, name)
			}
		}
	})
}

func TestIsAnswered(t *testing.T) {
	for name, c := range map[string]struct {
		entry testEntry
		want  bool
	}{
		"TCP, the first packet": {testEntry{protocol: tcp, state: 1}, false},
		"TCP, established":      {testEntry{protocol: tcp, state: 3, answered: true}, true},
		"TCP, refused":          {testEntry{protocol: tcp, state: 8, answered: true}, false},
		"UDP, the first packet": {testEntry{protocol: udp}, false},
		"UDP, a reply":          {testEntry{protocol: udp, answered: true}, true},
	} {
		c.entry.from, c.entry.to = "10.0.0.1:1234", "10.0.0.2:80"
		var f Flow
		if !f.read(c.entry.message()) || f.IsAnswered() != c.want {
			t.Errorf("%s: %v", name, &f)
		}
	}
}
