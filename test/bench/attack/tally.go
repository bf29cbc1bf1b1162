package attack

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
)

// tally counts what an attack has sent, and what the server did about it. All connections of the attack share it.
type tally struct {
	sent      atomic.Int64 // units written
	bytes     atomic.Int64 // written to all sockets, TLS included
	confirmed atomic.Int64 // connections on which the server answered a last PING, after everything else

	mu      sync.Mutex     // guards what follows
	open    int            // connections that the server has not closed at the end
	closed  int            // connections that the server has closed
	goaways map[string]int // by error code
	resets  map[string]int // by error code
	answers map[string]int // by status
	errors  map[string]int // why connections could not be opened
}

func newTally() *tally {
	return &tally{goaways: map[string]int{}, resets: map[string]int{}, answers: map[string]int{}, errors: map[string]int{}}
}

// count adds one to an entry of one of the maps of the tally.
func (t *tally) count(in map[string]int, key string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	in[key]++
}

// ended notes how a connection stood when the attack was over.
func (t *tally) ended(closedByServer bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if closedByServer {
		t.closed++
	} else {
		t.open++
	}
}

// reached tells whether an attack has arrived: something that the server sent shows it, unless the attack is silent, and as many bytes
// were written as its units have at least.
func (t *tally) reached(row Attack) bool {
	const frameHeader = 9
	if (row.Unit == "frames" || row.Unit == "requests") && t.bytes.Load() < frameHeader*t.sent.Load() {
		return false
	}
	return t.sent.Load() > 0 && (row.Silent || t.answered())
}

// answered tells whether the server has sent anything, or has closed a connection.
func (t *tally) answered() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.confirmed.Load() > 0 || t.closed > 0 || len(t.goaways)+len(t.resets)+len(t.answers) > 0
}

// String is what the attacker got, for the table.
func (t *tally) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	parts := []string{}
	if t.open > 0 {
		parts = append(parts, fmt.Sprintf("%d open", t.open))
	}
	if t.closed > 0 {
		parts = append(parts, fmt.Sprintf("%d closed", t.closed))
	}
	for _, group := range []struct {
		name   string
		counts map[string]int
	}{{"GOAWAY", t.goaways}, {"reset", t.resets}, {"status", t.answers}, {"no connection:", t.errors}} {
		for _, key := range slices.Sorted(maps.Keys(group.counts)) {
			parts = append(parts, fmt.Sprintf("%s %s ×%d", group.name, key, group.counts[key]))
		}
	}
	return strings.Join(parts, ", ")
}
