package service

import (
	"fmt"
	"math/bits"
	"slices"

	"github.com/google/nftables"

	"proa.dev/network/nft"
)

// endpointMap is a map of endpoints in the kernel, with the changes of the next transaction.
type endpointMap struct {
	set      *nftables.Set
	del, add []nftables.SetElement
}

// apply notes the moves of a group, whose keys are made of its numbers.
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

// shard is a map for the groups of several chains: each has a range of numbers. When a rule that uses a map is written, the
// kernel looks at all its elements, so that one map for all would make every change as dear as all together. And it looks for
// maps one by one, so that a map for each chain would do the same.
type shard struct {
	endpointMap
	size uint32
	next uint32
	free [32][]uint32 // ranges that were given back, by the logarithm of their length
	used int          // chains
}

// shardSize is how many numbers the usual shard has. Larger groups have one for themselves.
const shardSize = 512

// space is a range in a shard.
type space struct {
	*shard
	first, room uint32
}

func (s space) key(number int) []byte { return nft.Native(s.first + uint32(number)) }

// take finds room for n endpoints in a shard. Lengths are powers of two, so that what one group gives back fits another, and
// a group that grows by one seldom moves.
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

func (s space) give() {
	class := bits.Len32(s.room - 1)
	s.free[class] = append(s.free[class], s.first)
	s.used--
}

// place finds a space for a group of a chain, in a new shard if need be.
func (tx *transaction) place(f *family, n int) (space, error) {
	for _, s := range slices.Backward(f.shards) {
		if sp, ok := s.take(n); ok {
			return sp, nil
		}
	}
	s := &shard{size: max(shardSize, uint32(1)<<bits.Len(uint(n-1)))}
	s.set = &nftables.Set{Table: tx.handle, Name: fmt.Sprintf("endpoints%s-%d", f.Digit(), f.shardCount), IsMap: true, KeyType: nftables.TypeMark, DataType: f.Zone()}
	f.shardCount++
	if err := nft.AddSet(tx.conn, s.set); err != nil {
		return space{}, err
	}
	f.shards = append(f.shards, s)
	sp, _ := s.take(n)
	return sp, nil
}

// prune removes the shards of large groups that are gone; nothing smaller would use all of them.
func (f *family) prune(remove func(*nftables.Set)) {
	f.shards = slices.DeleteFunc(f.shards, func(s *shard) bool {
		empty := s.used == 0 && s.size > shardSize
		if empty {
			remove(s.set)
		}
		return empty
	})
}

// regroup brings the endpoints of a chain to what is wanted.
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
		if have.space, err = tx.place(want.family, len(want.endpoints)); err != nil {
			return err
		}
	}
	moves := have.group.update(want.endpoints)
	have.apply(moves, have.key)
	return tx.moveNumbers(have, moves)
}

// empty takes the endpoints of a chain out of its shard.
func (tx *transaction) empty(have *chain) error {
	moves := have.group.update(nil)
	have.apply(moves, have.key)
	have.give()
	have.space = space{}
	return tx.moveNumbers(have, moves)
}
