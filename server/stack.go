package server

// deep is about how much stack the way of a write takes, from the first line of ServeHTTP to the transaction.
const deep = 12 << 10

// roomy makes the stack of its goroutine large enough for a whole request at once. Each request of HTTP/2 has a goroutine of its
// own, which starts with little; grown step by step, its stack would be copied again and again on the way down. It is
// the size of the frame that does it: fill is false, and nothing is written.
//
//go:noinline
func roomy(fill bool) byte {
	if !fill {
		return 0
	}
	var frame [deep]byte
	for i := range frame {
		frame[i] = byte(i)
	}
	return frame[len(frame)/2]
}
