package framework

import (
	"hash/maphash"
	"maps"
)

// imageStates has the number of nodes that have an image, by image name. It is split into shards, so that a change
// copies only a part.
type imageStates struct {
	seed   maphash.Seed
	shards [256]map[string]int32
	copied [256]bool
}

func newImageStates() *imageStates { return &imageStates{seed: maphash.MakeSeed()} }

func (c *imageStates) shard(name string) int { return int(maphash.String(c.seed, name) % 256) }

func (c *imageStates) nodeCount(name string) int { return int(c.shards[c.shard(name)][name]) }

func (c *imageStates) add(name string, by int32) {
	i := c.shard(name)
	if !c.copied[i] {
		c.copied[i] = true
		c.shards[i] = maps.Clone(c.shards[i])
	}
	if c.shards[i] == nil {
		c.shards[i] = map[string]int32{}
	}
	if c.shards[i][name] += by; c.shards[i][name] <= 0 {
		delete(c.shards[i], name)
	}
}

func (c *imageStates) markShared() { c.copied = [256]bool{} }
