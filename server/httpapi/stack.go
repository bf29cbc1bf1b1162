package httpapi

// stackSize is about how much stack a write needs, from the first line of ServeHTTP to the transaction.
const stackSize = 12 << 10

// growStack makes the stack of its goroutine large enough for a whole request. Each request of HTTP/2 has a goroutine
// of its own, which starts with a small stack; grown step by step, it would be copied again and again while the request
// goes down its calls.
func growStack() { _ = largeFrame(false) }

// largeFrame needs a frame of stackSize bytes, for which its caller's stack is grown at once. Nothing is written to it:
// fill is false.
//
//go:noinline
func largeFrame(fill bool) byte {
	if !fill {
		return 0
	}
	var frame [stackSize]byte
	for i := range frame {
		frame[i] = byte(i)
	}
	return frame[len(frame)/2]
}
