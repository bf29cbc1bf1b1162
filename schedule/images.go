package schedule

import (
	"hash/maphash"
	"maps"
)

// counts say how many nodes have an image. It is split, so that a change copies little.
type counts struct {
	seed   maphash.Seed
	shards [256]map[string]int32
	own    [256]bool
}

func newCounts() *counts { return &counts{seed: maphash.MakeSeed()} }

func (c *counts) shard(name string) int { return int(maphash.String(c.seed, name) % 256) }

func (c *counts) of(name string) int { return int(c.shards[c.shard(name)][name]) }

func (c *counts) add(name string, by int32) {
	i := c.shard(name)
	if !c.own[i] {
		c.own[i] = true
		c.shards[i] = maps.Clone(c.shards[i])
	}
	if c.shards[i] == nil {
		c.shards[i] = map[string]int32{}
	}
	if c.shards[i][name] += by; c.shards[i][name] <= 0 {
		delete(c.shards[i], name)
	}
}

func (c *counts) publish() { c.own = [256]bool{} }
