package h2

import "time"

// A client may send so many frames that ask for nothing before it is sent away: a supply that grows again with time, and with requests.
const (
	nuisanceSupply = 5000
	// nuisanceRate is how many of them are forgiven in a second.
	nuisanceRate = 500
)

// What frames count against the supply.
const (
	costOfFrame    = 1 // pings, priorities, acknowledgements, data without data, frames of no known type, refused requests
	costOfReset    = 2 // a request and its reset count more than they forgive
	costOfSettings = 10
	// mostSettings bounds the entries of one SETTINGS frame. RFC 9113 defines seven.
	mostSettings = 32
)

// nuisance counts the frames of a connection that cost work and ask for nothing. It is the reader's alone.
type nuisance struct {
	spent int
	since time.Time // when the supply was last counted anew; at first, when the connection was opened
}

// add counts. It is an error when the client has sent too many in too short a time.
func (n *nuisance) add(cost int) error {
	if n.spent += cost; n.spent <= nuisanceSupply {
		return nil
	}
	now := time.Now()
	passed := min(now.Sub(n.since), time.Minute)
	n.since = now
	if n.spent = max(0, n.spent-int(passed*nuisanceRate/time.Second)); n.spent > nuisanceSupply {
		return breach(enhanceYourCalm, "too many frames that ask for nothing")
	}
	return nil
}

// forgive makes up for some of it, because a request came.
func (n *nuisance) forgive() { n.spent = max(0, n.spent-1) }
