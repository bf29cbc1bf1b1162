package pod

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"proa.dev/network/cni"
)

// record is what is known of one attached container. It is stored in a file that is named after its first address.
type record struct {
	ContainerID string       `json:"containerID"`
	IfName      string       `json:"ifName"`
	Pod         string       `json:"pod,omitempty"` // namespace/name
	UID         string       `json:"uid,omitempty"` // of the Pod
	NetNS       string       `json:"netns,omitempty"`
	HostIf      string       `json:"hostInterface"`
	Addresses   []netip.Addr `json:"addresses"`
	Ports       []hostPort   `json:"ports,omitempty"`
	Shaped      bool         `json:"shaped,omitempty"` // it has a device for what it sends
	Since       time.Time    `json:"since"`
	// Deleted says that the runtime has let go of it, and only the interface may be left.
	Deleted bool `json:"deleted,omitempty"`

	index uint32
}

func (r *record) key() cni.Attachment {
	return cni.Attachment{ContainerID: r.ContainerID, IfName: r.IfName}
}

// grace is how long a container may be unknown to the runtime, or without an interface, because it is just being made.
const grace = 2 * time.Minute

// stale tells whether the container is gone. Without knowledge of the runtime, a missing interface is the sign: it goes with
// the namespace of the container. Nothing that was asked for before start is still being made here.
func (r *record) stale(start, now time.Time, live map[string]bool, hasLink bool) bool {
	young := now.Sub(r.Since) <= grace
	if !hasLink {
		return !live[r.ContainerID] && (!young || r.Since.Before(start))
	}
	return live != nil && !live[r.ContainerID] && !young
}

// pool gives out addresses. Each container has one number, and in every network of the node the address with this number:
// the IPv4 and IPv6 addresses of a Pod, and the hardware address made from them, come and go together. A number that was
// given back is used again last, so that nobody's memory of its former owner matters.
type pool struct {
	dir      string
	prefixes []netip.Prefix
	first    uint32
	last     uint32

	mu    sync.Mutex // guards the rest
	next  uint32
	used  map[uint32]*record
	byKey map[cni.Attachment]*record
}

// most is how many containers a node may have, whatever its networks hold.
const most = 1 << 15

func newPool(dir string, prefixes []netip.Prefix) (*pool, error) {
	p := &pool{dir: dir, first: 2, last: most, used: map[uint32]*record{}, byKey: map[cni.Attachment]*record{}}
	for _, prefix := range prefixes {
		prefix = prefix.Masked()
		p.prefixes = append(p.prefixes, prefix)
		bits := prefix.Addr().BitLen() - prefix.Bits()
		if bits < 2 {
			return nil, fmt.Errorf("the pod CIDR %s has no room for a gateway and a Pod; use a larger one", prefix)
		}
		if bits < 16 {
			// The first address is the network, the second the gateway, the last one the broadcast address.
			p.last = min(p.last, 1<<bits-2)
		}
	}
	p.next = p.first
	return p, nil
}

// openPool reads what is in use. A file that cannot be read is from a machine that lost its power, and its container is
// gone with it. An address outside the networks of this node is from an earlier life of the node: its container keeps it.
func openPool(dir string, prefixes []netip.Prefix, log *slog.Logger) (*pool, error) {
	p, err := newPool(dir, prefixes)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make the folder of addresses: %w", err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("read the addresses in use: %w", err)
	}
	var newest time.Time
	for _, e := range entries {
		name := filepath.Join(dir, e.Name())
		r, err := readRecord(name)
		if err != nil {
			log.Warn("an address file is of no use and is removed", "file", name, "err", err)
			if err := os.Remove(name); err != nil {
				return nil, fmt.Errorf("remove a broken address file: %w", err)
			}
			continue
		}
		p.adopt(r)
		if r.Since.After(newest) && r.index <= p.last {
			newest, p.next = r.Since, r.index+1
		}
	}
	return p, nil
}

func readRecord(name string) (*record, error) {
	if strings.HasSuffix(name, ".new") {
		return nil, errors.New("it was never finished")
	}
	raw, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	r := &record{}
	if err := json.Unmarshal(raw, r); err != nil {
		return nil, err
	}
	if len(r.Addresses) == 0 || r.ContainerID == "" || r.HostIf == "" {
		return nil, errors.New("it names no container, address or interface")
	}
	return r, nil
}

// adopt takes over a record of an earlier process. Addresses that are not of this node get numbers behind all others.
func (p *pool) adopt(r *record) {
	i := slices.IndexFunc(p.prefixes, func(x netip.Prefix) bool { return x.Contains(r.Addresses[0]) })
	if i >= 0 {
		r.index = number(p.prefixes[i], r.Addresses[0])
	}
	for n := uint32(most + 1); i < 0 || p.used[r.index] != nil || r.index < p.first; n++ {
		r.index, i = n, 0
	}
	p.used[r.index] = r
	if !r.Deleted {
		p.byKey[r.key()] = r
	}
}

// get finds the record of a container.
func (p *pool) get(key cni.Attachment) *record {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.byKey[key]
}

// all are the records, in the order of their numbers.
func (p *pool) all() []*record {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := make([]*record, 0, len(p.used))
	for _, r := range p.used {
		out = append(out, r)
	}
	slices.SortFunc(out, func(a, b *record) int { return int(a.index) - int(b.index) })
	return out
}

// errFull says that every address is in use.
var errFull = errors.New("no address is free")

// reserve gives the container its addresses and stores the record before anything else happens with them.
func (p *pool) reserve(r *record) error {
	p.mu.Lock()
	err := p.choose(r)
	p.mu.Unlock()
	if err != nil {
		return err
	}
	if err := p.store(r); err != nil {
		p.drop(r)
		return err
	}
	return nil
}

func (p *pool) choose(r *record) error {
	count := p.last - p.first + 1
	for i := range count {
		n := p.first + (p.next-p.first+i)%count
		if p.used[n] != nil {
			continue
		}
		p.next, r.index = n+1, n
		r.Addresses = nil
		for _, prefix := range p.prefixes {
			r.Addresses = append(r.Addresses, address(prefix, n))
		}
		r.HostIf = hostSide(r.ContainerID, r.IfName, r.Addresses[0])
		p.used[n], p.byKey[r.key()] = r, r
		return nil
	}
	return errFull
}

// store writes the file of a record; it appears whole or not at all.
func (p *pool) store(r *record) error {
	raw, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("encode the address: %w", err)
	}
	name := p.file(r)
	if err := os.WriteFile(name+".new", raw, 0o600); err != nil {
		return fmt.Errorf("store the address: %w", err)
	}
	if err := os.Rename(name+".new", name); err != nil {
		return fmt.Errorf("store the address: %w", err)
	}
	return nil
}

// release gives the addresses back.
func (p *pool) release(r *record) error {
	if err := os.Remove(p.file(r)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("give back the address: %w", err)
	}
	p.drop(r)
	return nil
}

func (p *pool) drop(r *record) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.used[r.index] == r {
		delete(p.used, r.index)
	}
	if p.byKey[r.key()] == r {
		delete(p.byKey, r.key())
	}
}

// replace puts another record in the place of one. A deleted one lets go of the container's name, so that the container may
// come again while its old interface still goes. Records are never changed, because others may be looking at them.
func (p *pool) replace(old, r *record) error {
	if err := p.store(r); err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.used[r.index] = r
	if p.byKey[r.key()] == old {
		delete(p.byKey, r.key())
	}
	if !r.Deleted {
		p.byKey[r.key()] = r
	}
	return nil
}

func (p *pool) file(r *record) string { return filepath.Join(p.dir, r.Addresses[0].String()) }

// gateway is the node's own address in a network of Pods.
func gateway(p netip.Prefix) netip.Addr { return address(p.Masked(), 1) }

// address is the nth of a network.
func address(p netip.Prefix, n uint32) netip.Addr {
	b := p.Addr().AsSlice()
	for i := len(b) - 1; i >= 0 && n > 0; i-- {
		n += uint32(b[i])
		b[i] = byte(n)
		n >>= 8
	}
	a, _ := netip.AddrFromSlice(b)
	return a
}

// number is the place of an address in its network.
func number(p netip.Prefix, a netip.Addr) uint32 {
	var n uint32
	base, b := p.Masked().Addr().AsSlice(), a.AsSlice()
	for i := max(0, len(b)-4); i < len(b); i++ {
		n = n<<8 + uint32(b[i]-base[i])
	}
	return n
}
