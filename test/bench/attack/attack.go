// Package attack attacks a running API server as an unauthenticated client or an ordinary user could, and measures what
// that costs: processor time, memory, and requests of other users that are not answered. Each attack is run against the
// server with each of its HTTP/2 implementations (proa server --http2=own and --http2=std, that of net/http), so that
// the two can be compared row by row.
//
// An attack sends a fixed amount of work within a bounded time. A connection that the server closes is opened again a
// few times, as an attacker would.
package attack

import (
	"context"
	"time"
)

// Attack is one row of the table.
type Attack struct {
	Name string
	Unit string // what Planned counts
	// Connections run the script at the same time. Planned is how many units they send together if
	// the server lets them.
	Connections int
	Planned     int
	// NeedsList says that the namespace of the attacker must hold large objects to be listed.
	NeedsList bool
	// Window is how long the attack lasts; 0 stands for the usual time. The connections stay open until it is over.
	Window time.Duration
	// Silent says that nothing the server sends can show that the attack has arrived, so that only what was written counts.
	Silent bool
	script func(ctx context.Context, a *attacker) error
}

// Attacks returns all rows in the order of the table.
func Attacks() []Attack {
	var rows []Attack
	for _, family := range [][]Attack{headerAttacks(), bodyAttacks(), windowAttacks(), floodAttacks(), resetAttacks(), slowAttacks(),
		userAttacks()} {
		rows = append(rows, family...)
	}
	return rows
}

// usualWindow is how long an attack lasts unless its row says otherwise; longWindow is for those that send hundreds of megabytes.
const (
	usualWindow = 2 * time.Second
	longWindow  = 3 * time.Second
)

func (a Attack) window() time.Duration {
	if a.Window > 0 {
		return a.Window
	}
	return usualWindow
}

// each is how many units one connection of an attack sends.
func (a Attack) each() int { return a.Planned / a.Connections }
