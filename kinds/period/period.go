// Package period makes times of the seconds that objects say. It is a leaf: one function that knows how long a time.Duration is.
package period

import "time"

// longest is 146 years: what is longer does not end, and something can still be added to it.
const longest time.Duration = 1 << 62

// Seconds is a number of seconds of an object. The API lets them be more than a time.Duration holds, and a deadline in the far
// future must not become one in the past.
func Seconds(n int64) time.Duration {
	const most = int64(longest / time.Second)
	return time.Duration(max(-most, min(n, most))) * time.Second
}
