// Package nft writes rules of the kernel's packet filter over netlink: transactions that happen whole or not at all, and
// the words that rules are made of. Nothing is executed; a change costs tens of microseconds.
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

// Kernel is the packet filter of the network namespace that the process was in when it was opened.
type Kernel struct {
	mu   sync.Mutex // guards conn; one transaction at a time
	conn *nftables.Conn
}

// Open makes ready to talk to the kernel. The socket is opened at once, so that later calls stay in this namespace.
func Open() (*Kernel, error) {
	k := &Kernel{}
	return k, k.dial()
}

// The kernel answers every message of a transaction, and it takes a transaction in one piece. The buffers hold those of
// some ten thousand Services; they take memory only while they are in use.
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

// Do runs one transaction: what change asks for happens at once, or nothing of it.
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
		// Answers may be left in the socket, and messages in the connection: begin anew next time.
		_ = k.conn.CloseLasting()
		k.conn = nil
	}
	return err
}

// Close ends the connection.
func (k *Kernel) Close() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.conn == nil {
		return nil
	}
	return k.conn.CloseLasting()
}

// Remove takes a table away, with everything in it. That it is not there is no error.
func (k *Kernel) Remove(name string) error { return k.remove(nftables.TableFamilyINet, name) }

// RemoveBridge does the same for a table of a bridge's packets.
func (k *Kernel) RemoveBridge(name string) error { return k.remove(nftables.TableFamilyBridge, name) }

func (k *Kernel) remove(family nftables.TableFamily, name string) error {
	return k.Do(func(c *nftables.Conn) error {
		c.DelTable(fresh(c, family, name))
		return nil
	})
}

// Has tells whether a table is there. Programs that manage a firewall are known to remove what they do not know.
func (k *Kernel) Has(name string) (bool, error) { return k.has(nftables.TableFamilyINet, name) }

// HasBridge does the same for a table of a bridge's packets.
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

// Fresh makes sure that the table exists, so that it can be deleted or added to.
func Fresh(c *nftables.Conn, name string) *nftables.Table {
	return fresh(c, nftables.TableFamilyINet, name)
}

func fresh(c *nftables.Conn, family nftables.TableFamily, name string) *nftables.Table {
	return c.AddTable(&nftables.Table{Family: family, Name: name})
}

// Renew replaces a table: what was in it goes, and what the transaction adds next takes its place in the same moment.
func Renew(c *nftables.Conn, name string) *nftables.Table {
	c.DelTable(Fresh(c, name))
	return Fresh(c, name)
}

// RenewBridge does the same for a table of a bridge's packets.
func RenewBridge(c *nftables.Conn, name string) *nftables.Table {
	c.DelTable(fresh(c, nftables.TableFamilyBridge, name))
	return fresh(c, nftables.TableFamilyBridge, name)
}

// AddSet adds a set.
func AddSet(c *nftables.Conn, s *nftables.Set, elements ...nftables.SetElement) error {
	return c.AddSet(Numbered(s), elements)
}

// Numbered gives a set the number by which a transaction knows it; the library would count in a variable that all connections
// share.
func Numbered(s *nftables.Set) *nftables.Set {
	h := fnv.New32a()
	_, _ = h.Write([]byte(s.Name))
	s.ID = h.Sum32() | 1
	return s
}

// chunk is how many elements go into one message, whose lists hold 64 KiB.
const chunk = 256

// InChunks adds or deletes elements, many of them in several messages.
func InChunks(s *nftables.Set, list []nftables.SetElement, do func(*nftables.Set, []nftables.SetElement) error) error {
	for part := range slices.Chunk(list, chunk) {
		if err := do(s, part); err != nil {
			return err
		}
	}
	return nil
}
