package podnetwork

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

// record describes one attached container. It is stored in a file that is named after its first address.
type record struct {
	ContainerID string       `json:"containerID"`
	IfName      string       `json:"ifName"`
	Pod         string       `json:"pod,omitempty"` // namespace/name
	UID         string       `json:"uid,omitempty"` // of the Pod
	NetNS       string       `json:"netns,omitempty"`
	HostIf      string       `json:"hostInterface"`
	Addresses   []netip.Addr `json:"addresses"`
	Ports       []hostPort   `json:"ports,omitempty"`
	Shaped      bool         `json:"shaped,omitempty"` // it has an IFB device that limits what it sends
	Since       time.Time    `json:"since"`
	// Deleted means that DEL was called and only the interface may be left.
	Deleted bool `json:"deleted,omitempty"`

	index uint32
}

func (r *record) key() cni.Attachment {
	return cni.Attachment{ContainerID: r.ContainerID, IfName: r.IfName}
}

// grace is how long a container that is being created may be unknown to the runtime or without an interface.
const grace = 2 * time.Minute

// isStale reports whether the container no longer exists. If the containers of the runtime are not known, a missing
// interface decides: it is removed with the namespace of the container. Requests from before start do not run any more.
func (r *record) isStale(start, now time.Time, live map[string]bool, hasLink bool) bool {
	young := now.Sub(r.Since) <= grace
	if !hasLink {
		return !live[r.ContainerID] && (!young || r.Since.Before(start))
	}
	return live != nil && !live[r.ContainerID] && !young
}

// pool allocates addresses. Each container has one number, and in every network of the node the address with this
// number, so that its IPv4 and IPv6 addresses and the hardware address derived from them belong together. A freed
// number is reused as late as possible, so that stale caches of its former owner have expired.
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

// maxContainers is how many containers a node may have, whatever its networks hold.
const maxContainers = 1 << 15

func newPool(dir string, prefixes []netip.Prefix) (*pool, error) {
	p := &pool{dir: dir, first: 2, last: maxContainers, used: map[uint32]*record{}, byKey: map[cni.Attachment]*record{}}
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

// openPool reads the addresses that are in use. A file that cannot be parsed was written when the machine lost power;
// its container no longer exists. An address outside the networks of this node is from a time when the node had other
// networks: its container keeps it.
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

// adopt takes over a record of an earlier process. Addresses outside the networks of this node get numbers behind all
// others.
func (p *pool) adopt(r *record) {
	i := slices.IndexFunc(p.prefixes, func(x netip.Prefix) bool { return x.Contains(r.Addresses[0]) })
	if i >= 0 {
		r.index = number(p.prefixes[i], r.Addresses[0])
	}
	for n := uint32(maxContainers + 1); i < 0 || p.used[r.index] != nil || r.index < p.first; n++ {
		r.index, i = n, 0
	}
	p.used[r.index] = r
	if !r.Deleted {
		p.byKey[r.key()] = r
	}
}

// get returns the record of a container, or nil.
func (p *pool) get(key cni.Attachment) *record {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.byKey[key]
}

// all returns the records, sorted by number.
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

// errFull means that every address is in use.
var errFull = errors.New("no address is free")

// reserve allocates addresses for the container. It stores the record before the addresses are used.
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
		r.HostIf = hostInterface(r.ContainerID, r.IfName, r.Addresses[0])
		p.used[n], p.byKey[r.key()] = r, r
		return nil
	}
	return errFull
}

// store writes the file of a record atomically.
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

// release frees the addresses of a record.
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

// replace replaces a record. A deleted record no longer occupies the name of its container, so that the container can
// be added again while its old interface is removed. Records are immutable, because other goroutines may read them.
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

// gateway returns the address of the node in a network of Pods.
func gateway(p netip.Prefix) netip.Addr { return address(p.Masked(), 1) }

// address returns the nth address of a network.
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

// number returns the position of an address in its network.
func number(p netip.Prefix, a netip.Addr) uint32 {
	var n uint32
	base, b := p.Masked().Addr().AsSlice(), a.AsSlice()
	for i := max(0, len(b)-4); i < len(b); i++ {
		n = n<<8 + uint32(b[i]-base[i])
	}
	return n
}
