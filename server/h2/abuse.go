package h2

import (
	"time"

	"proa.dev/server/h2/h2wire"
)

// A client may send so many frames that request nothing before its connection is closed. The count goes down with time,
// and with requests.
const (
	abuseLimit = 5000
	// abuseRecovery is by how much the count goes down in a second.
	abuseRecovery = 500
)

// What each frame adds to the count.
const (
	costOfFrame    = 1 // pings, priorities, acknowledgements, empty DATA frames, unknown frame types, refused requests
	costOfReset    = 2 // more than the request before it takes off the count
	costOfSettings = 10
	// maxSettings is the number of entries that one SETTINGS frame may have. RFC 9113 defines seven.
	maxSettings = 32
)

// abuseCounter counts the frames of a connection that cost work and request nothing. Only the reading goroutine uses
// it.
type abuseCounter struct {
	spent int
	since time.Time // when the recovery was last counted; at first, when the connection was opened
}

// add counts a frame. It returns an error when the client has sent too many in too short a time.
func (n *abuseCounter) add(cost int) error {
	if n.spent += cost; n.spent <= abuseLimit {
		return nil
	}
	now := time.Now()
	passed := min(now.Sub(n.since), time.Minute)
	n.since = now
	if n.spent = max(0, n.spent-int(passed*abuseRecovery/time.Second)); n.spent > abuseLimit {
		return h2wire.NewError(h2wire.EnhanceYourCalm, "too many frames that request nothing")
	}
	return nil
}

// forgive takes a frame off the count, because the client has sent a request.
func (n *abuseCounter) forgive() { n.spent = max(0, n.spent-1) }
