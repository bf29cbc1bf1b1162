package servicetable

import (
	"fmt"
	"math/bits"
	"slices"

	"github.com/google/nftables"

	"proa.dev/network/nft"
)

// endpointMap is a map from numbers to endpoints in the kernel, with the changes of the next transaction.
type endpointMap struct {
	set      *nftables.Set
	del, add []nftables.SetElement
}

// apply adds the moves of a group to the next transaction. key returns the key of a number.
func (m *endpointMap) apply(moves []move, key func(number int) []byte) {
	for _, mv := range moves {
		if mv.had {
			m.del = append(m.del, nftables.SetElement{Key: key(mv.number)})
		}
		if mv.now.IsValid() {
			m.add = append(m.add, nftables.SetElement{Key: key(mv.number), Val: nft.Key(mv.now.Addr(), mv.now.Port())})
		}
	}
}

// shard is an endpoint map that several chains share; each has a range of its numbers. When a rule that uses a map is written, the kernel
// visits all elements of the map, so one map for all chains would make every change expensive. It also searches maps one by one, so a map
// for each chain would be expensive too.
type shard struct {
	endpointMap
	size uint32
	next uint32
	free [32][]uint32 // ranges to reuse, by the logarithm of their length
	used int          // how many chains use the shard
}

// shardSize is how many numbers a shard has. A larger group gets a larger shard for itself.
const shardSize = 512

// space is the range of a chain in a shard.
type space struct {
	*shard
	first, room uint32
}

func (s space) key(number int) []byte { return nft.Native(s.first + uint32(number)) }

// take allocates a range for n endpoints. Lengths are powers of two, so that freed ranges fit other groups, and a group that grows by one
// seldom moves.
func (s *shard) take(n int) (space, bool) {
	class := bits.Len(uint(n - 1))
	room := uint32(1) << class
	if list := s.free[class]; len(list) > 0 {
		s.free[class] = list[:len(list)-1]
		s.used++
		return space{s, list[len(list)-1], room}, true
	}
	if s.next+room > s.size {
		return space{}, false
	}
	first := s.next
	s.next += room
	s.used++
	return space{s, first, room}, true
}

// release frees the range.
func (s space) release() {
	class := bits.Len32(s.room - 1)
	s.free[class] = append(s.free[class], s.first)
	s.used--
}

// allocate finds a range for the group of a chain, in a new shard if necessary.
func (tx *transaction) allocate(f *family, n int) (space, error) {
	for _, s := range slices.Backward(f.shards) {
		if sp, ok := s.take(n); ok {
			return sp, nil
		}
	}
	s := &shard{size: max(shardSize, uint32(1)<<bits.Len(uint(n-1)))}
	s.set = &nftables.Set{Table: tx.handle, Name: fmt.Sprintf("endpoints%s-%d", f.Digit(), f.shardCount), IsMap: true,
		KeyType: nftables.TypeMark, DataType: f.Zone()}
	f.shardCount++
	if err := nft.AddSet(tx.conn, s.set); err != nil {
		return space{}, err
	}
	f.shards = append(f.shards, s)
	sp, _ := s.take(n)
	return sp, nil
}

// prune removes empty shards of large groups, which smaller groups would not fill.
func (f *family) prune(remove func(*nftables.Set)) {
	f.shards = slices.DeleteFunc(f.shards, func(s *shard) bool {
		empty := s.used == 0 && s.size > shardSize
		if empty {
			remove(s.set)
		}
		return empty
	})
}

// regroup updates the endpoints of a chain.
func (tx *transaction) regroup(have *chain, want wantedChain) error {
	if have.group == nil {
		have.group = &group{}
	}
	if have.room > 0 && len(want.endpoints) > int(have.room) {
		if err := tx.empty(have); err != nil {
			return err
		}
	}
	if have.room == 0 {
		var err error
		if have.space, err = tx.allocate(want.family, len(want.endpoints)); err != nil {
			return err
		}
	}
	moves := have.group.update(want.endpoints)
	have.apply(moves, have.key)
	return tx.moveNumbers(have, moves)
}

// empty removes the endpoints of a chain from its shard.
func (tx *transaction) empty(have *chain) error {
	moves := have.group.update(nil)
	have.apply(moves, have.key)
	have.release()
	have.space = space{}
	return tx.moveNumbers(have, moves)
}
