package hop

import (
	"hash/maphash"
	"time"
)

const (
	// detailInterval is the time for each request that is recorded in detail, from each of the three budgets of details, and detailBurst
	// for how long requests may arrive faster. More of them would push out each other's bodies within a second or two.
	detailInterval, detailBurst = 10 * time.Millisecond, time.Second
	// userDetailInterval is the time for each request of one user from the budget that users share.
	userDetailInterval = 2 * detailInterval
	// detailUsers is how many users have a part of their own at most.
	detailUsers = 64
)

// details bounds how many requests are recorded in detail.
type details struct {
	// local is the budget of callers in this process. Clients over HTTP have two: each user has a part of shared, and whoever comes first
	// takes from first, so that one user alone has most of both, and with many requests leaves others their part.
	local, shared, first Budget
	ofUsers              [detailUsers]Budget
}

// Detail reports whether a request that arrives now is recorded in detail, which costs more: with each admission plugin that takes long,
// and with its bodies. When there are more than 200 requests in a second for a while, or 150 of one user, some of them are not. The user
// of a caller in this process, such as a controller, is empty: these are counted apart from clients over HTTP.
func (r *Recorder) Detail(now time.Time, user string) bool {
	if r == nil {
		return false
	}
	d := &r.details
	if user == "" {
		return d.local.Spend(detailInterval/2, detailBurst, now)
	}
	own := &d.ofUsers[maphash.String(r.main.seed, ClientKey(user))%detailUsers]
	return own.Has(userDetailInterval, detailBurst, now) && d.shared.Spend(detailInterval, detailBurst, now) &&
		own.Spend(userDetailInterval, detailBurst, now) || d.first.Spend(detailInterval, detailBurst, now)
}
