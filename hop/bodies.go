package hop

import (
	"hash/maphash"
	"slices"

	"k8s.io/apimachinery/pkg/types"
)

const (
	// maxBodies is how many bytes of bodies a Recorder keeps, and bodyShare how many of one user when there is no room for those of others.
	maxBodies, bodyShare = 1 << 20, maxBodies / 4
	// bodyUsers is how many users have shares of their own at most.
	bodyUsers = 1 << 8
)

// bodies are the bodies that a Recorder keeps.
type bodies struct {
	kept    []keptBodies   // the oldest first
	held    int            // their bytes
	ofUsers [bodyUsers]int // the bytes of each user
}

// keptBodies tells which record of the main history has a Wire.
type keptBodies struct {
	slot  int32
	owner uint8 // the index of the user who has made the write
	wire  *Wire
}

// SetWire sets the bodies of a write that was recorded. The bodies of older writes make room for them.
func (r *Recorder) SetWire(uid types.UID, rev int64, w *Wire) {
	if r == nil || len(w.Request)+len(w.Response) > maxBodies {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for i, rec := range r.main.of(string(uid)) {
		if rec.Rev != rev || !rec.IsWrite() {
			continue
		}
		rec.Wire = w
		b, k := &r.bodies, keptBodies{i, uint8(maphash.String(r.main.seed, rec.userKey())), w}
		b.kept = append(b.kept, k)
		b.count(k, 1)
		for b.held > maxBodies {
			old := b.removeOldest()
			if was := &r.main.records[old.slot]; was.Wire == old.wire { // the slot may have another record now
				was.Wire = nil
			}
		}
		return
	}
}

// removeOldest removes the oldest bodies of a user who has more than a share of them, or else the oldest of all.
func (b *bodies) removeOldest() keptBodies {
	i := max(slices.IndexFunc(b.kept, func(k keptBodies) bool { return b.ofUsers[k.owner] > bodyShare }), 0)
	old := b.kept[i]
	b.count(old, -1)
	if i == 0 {
		b.kept = b.kept[1:]
	} else {
		b.kept = slices.Delete(b.kept, i, i+1)
	}
	return old
}

// count adds the bytes of bodies to those that are held, or subtracts them if sign is -1.
func (b *bodies) count(k keptBodies, sign int) {
	b.held += sign * k.wire.size()
	b.ofUsers[k.owner] += sign * k.wire.size()
}

func (w *Wire) size() int { return wireSize + cap(w.Request) + cap(w.Response) }
