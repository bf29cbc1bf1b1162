package httpproxy

import (
	"hash/fnv"
	"slices"
	"time"
)

// sticky chooses the endpoint of a client by rendezvous hashing: the pair of client and endpoint with the highest hash
// wins. No state is needed, every proxy chooses alike, and when an endpoint is added or removed only its own clients
// move.
func sticky(client string, live, tried []*endpoint) (best *endpoint) {
	now := time.Now().UnixNano()
	var most uint64
	for _, e := range live {
		if slices.Contains(tried, e) {
			continue
		}
		n := weight(client, e.addr) >> 1
		if e.avoidUntil.Load() <= now {
			n |= 1 << 63 // an endpoint that can be reached wins over all that cannot
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
	// The last bytes of the input have little influence on the hash; this spreads them.
	n := h.Sum64()
	n ^= n >> 33
	n *= 0xff51afd7ed558ccd
	return n ^ n>>33
}
