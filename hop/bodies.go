package hop

import (
	"hash/maphash"
	"slices"

	"k8s.io/apimachinery/pkg/types"
)

const (
	// maxBodies is how many bytes of bodies a Recorder keeps, and bodyShare how many of one user when there is no room for those of others.
	maxBodies, bodyShare = 1 << 20, maxBodies / 4
	// localBodies is how many bytes of bodies of callers in this process are kept when there is no room for those of clients over HTTP.
	localBodies = maxBodies / 2
	// bodyUsers is how many users have shares of their own at most.
	bodyUsers = 1 << 8
)

// bodies are the bodies that a Recorder keeps: of clients over HTTP, and of callers in this process. One request of a client may lead to
// many writes of controllers, which must not push out the bodies of the request itself.
type bodies struct{ clients, local bodyList }

// bodyList is a list of bodies, the oldest first.
type bodyList struct {
	kept []keptBodies
	held int // their bytes
	// ofUsers are the bytes of each user. The bodies of a controller count for the user whose request led to its write.
	ofUsers [bodyUsers]int
}

// keptBodies tells which record of the main history has a Wire.
type keptBodies struct {
	slot  int32
	owner uint8 // the index of the user in ofUsers
	wire  *Wire
}

// KeepsBodies reports whether SetWire keeps the bodies of writes of a resource or subresource. Those that happen all the time by
// themselves, such as renewals of Leases, would push out all others.
func (r *Recorder) KeepsBodies(group, resource, subresource string) bool {
	return r != nil && !r.NoBodies && !isRoutine(group, resource, subresource)
}

// SetWire sets the bodies of a write that was recorded. The bodies of older writes make room for them.
func (r *Recorder) SetWire(uid types.UID, rev int64, w *Wire) {
	if r == nil || r.NoBodies || w.size() > bodyShare {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for i, rec := range r.main.of(string(uid)) {
		if rec.Rev != rev || !rec.IsWrite() {
			continue
		}
		rec.Wire = w
		r.bodies.listOf(w).add(keptBodies{i, r.bodyOwner(i, w), w})
		for r.bodies.held() > maxBodies {
			old := r.bodies.removeOldest()
			if was := &r.main.records[old.slot]; was.Wire == old.wire { // the slot may have another record now
				was.Wire = nil
			}
		}
		return
	}
}

// bodyOwner returns the index of the user whose share the bodies of a record take. What a client over HTTP sends is his own, also if he is
// a node that writes about objects of others. The caller holds mu.
func (r *Recorder) bodyOwner(slot int32, w *Wire) uint8 {
	if w.InProcess {
		return uint8(r.main.links[slot].in[clientGrouping].list)
	}
	return uint8(maphash.String(r.main.seed, r.main.records[slot].userKey()))
}

func (b *bodies) held() int { return b.clients.held + b.local.held }

// listOf returns the list that bodies belong into.
func (b *bodies) listOf(w *Wire) *bodyList {
	if w.InProcess {
		return &b.local
	}
	return &b.clients
}

// removeOldest removes the oldest bodies of the callers in this process if these have more than their part, or else of the clients.
func (b *bodies) removeOldest() keptBodies {
	if b.local.held > localBodies {
		return b.local.removeOldest()
	}
	return b.clients.removeOldest()
}

func (l *bodyList) add(k keptBodies) {
	l.kept = append(l.kept, k)
	l.count(k, 1)
}

// removeOldest removes the oldest bodies of a user who has more than a share of them, or else the oldest of all.
func (l *bodyList) removeOldest() keptBodies {
	i := max(slices.IndexFunc(l.kept, func(k keptBodies) bool { return l.ofUsers[k.owner] > bodyShare }), 0)
	old := l.kept[i]
	l.count(old, -1)
	if i == 0 {
		l.kept[0] = keptBodies{} // the array keeps it otherwise
		l.kept = l.kept[1:]
	} else {
		l.kept = slices.Delete(l.kept, i, i+1)
	}
	return old
}

// count adds the bytes of bodies to those that are held, or subtracts them if sign is -1.
func (l *bodyList) count(k keptBodies, sign int) {
	l.held += sign * k.wire.size()
	l.ofUsers[k.owner] += sign * k.wire.size()
}

func (w *Wire) size() int {
	n := wireSize + cap(w.Request) + cap(w.Response)
	if w.RequestJSON != nil {
		n += jsonSize
	}
	if w.ResponseJSON != nil {
		n += jsonSize
	}
	return n
}
