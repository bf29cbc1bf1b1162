package route

import (
	"hash/fnv"
	"slices"
	"time"
)

// sticky chooses the endpoint of a client: each pair of the two has a number, and the largest one wins. So nothing has to be
// remembered, every proxy chooses alike, and when an endpoint comes or goes only its own clients move.
func sticky(client string, live, tried []*endpoint) (best *endpoint) {
	now := time.Now().UnixNano()
	var most uint64
	for _, e := range live {
		if slices.Contains(tried, e) {
			continue
		}
		n := weight(client, e.addr) >> 1
		if e.resting.Load() <= now {
			n |= 1 << 63 // one that could be reached is better than any that could not
		}
		if best == nil || n > most {
			best, most = e, n
		}
	}
	return best
}

func weight(client, endpoint string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(client))
	_, _ = h.Write([]byte{0})
	_, _ = h.Write([]byte(endpoint))
	// The last bytes of what is hashed have moved little; this spreads them.
	n := h.Sum64()
	n ^= n >> 33
	n *= 0xff51afd7ed558ccd
	return n ^ n>>33
}
