// Package nft writes nftables rules over netlink: atomic transactions, and functions that build the expressions of
// rules. No program is executed; a change costs tens of microseconds.
package nft

import (
	"errors"
	"fmt"
	"hash/fnv"
	"slices"
	"sync"

	"github.com/google/nftables"
	"github.com/mdlayher/netlink"
)

// Kernel is nftables in the network namespace that the process was in when it was opened.
type Kernel struct {
	mu   sync.Mutex // guards conn; one transaction at a time
	conn *nftables.Conn
}

// Open opens the netlink socket at once, so that later calls stay in this namespace.
func Open() (*Kernel, error) {
	k := &Kernel{}
	return k, k.dial()
}

// buffer is the size of the socket buffers. The kernel acknowledges every message of a transaction, and takes a
// transaction in one piece. The buffers hold those of some ten thousand Services; they take memory only while they are
// in use.
const buffer = 256 << 20

func (k *Kernel) dial() (err error) {
	k.conn, err = nftables.New(nftables.AsLasting(), nftables.WithSockOptions(func(c *netlink.Conn) error {
		return errors.Join(c.SetReadBuffer(buffer), c.SetWriteBuffer(buffer))
	}))
	if err != nil {
		return fmt.Errorf("open the packet filter (nftables): %w", err)
	}
	return nil
}

// Do runs one transaction: all changes are applied atomically, or none.
func (k *Kernel) Do(change func(*nftables.Conn) error) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.conn == nil {
		if err := k.dial(); err != nil {
			return err
		}
	}
	err := change(k.conn)
	if err == nil {
		err = k.conn.Flush()
	}
	if err != nil {
		// Acknowledgements may be left in the socket, and messages in the connection: open a new one next time.
		_ = k.conn.CloseLasting()
		k.conn = nil
	}
	return err
}

// Close closes the connection.
func (k *Kernel) Close() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.conn == nil {
		return nil
	}
	return k.conn.CloseLasting()
}

// Remove deletes a table with everything in it. It is no error if the table does not exist.
func (k *Kernel) Remove(name string) error { return k.remove(nftables.TableFamilyINet, name) }

// RemoveBridge deletes a table of the bridge family.
func (k *Kernel) RemoveBridge(name string) error { return k.remove(nftables.TableFamilyBridge, name) }

func (k *Kernel) remove(family nftables.TableFamily, name string) error {
	return k.Do(func(c *nftables.Conn) error {
		c.DelTable(ensureTable(c, family, name))
		return nil
	})
}

// Has reports whether a table exists. Some firewall managers remove tables that they do not know.
func (k *Kernel) Has(name string) (bool, error) { return k.has(nftables.TableFamilyINet, name) }

// HasBridge reports whether a table of the bridge family exists.
func (k *Kernel) HasBridge(name string) (bool, error) { return k.has(nftables.TableFamilyBridge, name) }

func (k *Kernel) has(family nftables.TableFamily, name string) (has bool, err error) {
	err = k.Do(func(c *nftables.Conn) error {
		tables, err := c.ListTablesOfFamily(family)
		for _, t := range tables {
			has = has || t.Name == name
		}
		return err
	})
	return has, err
}

// Fresh adds the table if it does not exist, so that it can be deleted or added to.
func Fresh(c *nftables.Conn, name string) *nftables.Table {
	return ensureTable(c, nftables.TableFamilyINet, name)
}

func ensureTable(c *nftables.Conn, family nftables.TableFamily, name string) *nftables.Table {
	return c.AddTable(&nftables.Table{Family: family, Name: name})
}

// Renew replaces a table atomically by an empty one, to which the transaction then adds.
func Renew(c *nftables.Conn, name string) *nftables.Table {
	c.DelTable(Fresh(c, name))
	return Fresh(c, name)
}

// RenewBridge replaces a table of the bridge family.
func RenewBridge(c *nftables.Conn, name string) *nftables.Table {
	c.DelTable(ensureTable(c, nftables.TableFamilyBridge, name))
	return ensureTable(c, nftables.TableFamilyBridge, name)
}

// AddSet adds a set.
func AddSet(c *nftables.Conn, s *nftables.Set, elements ...nftables.SetElement) error {
	return c.AddSet(Numbered(s), elements)
}

// Numbered gives a set the ID that identifies it in a transaction; the library would use a counter that all connections
// share.
func Numbered(s *nftables.Set) *nftables.Set {
	h := fnv.New32a()
	_, _ = h.Write([]byte(s.Name))
	s.ID = h.Sum32() | 1
	return s
}

// chunk is how many elements go into one message, whose lists hold 64 KiB.
const chunk = 256

// InChunks adds or deletes elements, in several messages if there are many.
func InChunks(s *nftables.Set, list []nftables.SetElement, do func(*nftables.Set, []nftables.SetElement) error) error {
	for part := range slices.Chunk(list, chunk) {
		if err := do(s, part); err != nil {
			return err
		}
	}
	return nil
}
