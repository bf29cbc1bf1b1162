// Package duration converts the seconds in objects to a time.Duration without overflow.
package duration

import "time"

// longest is 146 years. Longer times count as infinite, and a duration can still be added without overflow.
const longest time.Duration = 1 << 62

// FromSeconds returns the duration of a number of seconds in an object. The API allows more than a time.Duration can
// hold, and a deadline in the far future must not become one in the past.
func FromSeconds(n int64) time.Duration {
	const most = int64(longest / time.Second)
	return time.Duration(max(-most, min(n, most))) * time.Second
}
