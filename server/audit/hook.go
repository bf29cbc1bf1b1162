package audit

import (
	"bytes"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
)

// Hook sends events to a webhook, in batches.
type Hook struct {
	// Post sends a list of events.
	Post func(body []byte) error
	// Blocking sends each event by itself, and makes its request wait for that.
	Blocking bool
	// Strict is Blocking, and a request whose arrival cannot be sent is refused.
	Strict bool
	// Buffer is how many events may wait, and Most the size of a batch, which is sent when its first event has waited
	// for Wait at the latest. 0 means 10,000, 400 and 30 seconds.
	Buffer, MaxBatch int
	MaxWait          time.Duration
	// Retry is the pause after the first failure; four more attempts follow, each pause half as long again. 0 means ten
	// seconds.
	Retry time.Duration
}

const (
	hookTries = 5
	// hookPause limits the rate of requests to the webhook.
	hookPause = 100 * time.Millisecond
	// maxHookBytes bounds the events that wait for the webhook or are being sent, and maxHookBatch those of one request to it unless a
	// single event is larger: an event may have the bodies of its request and response.
	maxHookBytes, maxHookBatch = 64 << 20, 10 << 20
)

func (h Hook) withDefaults() Hook {
	h.Blocking = h.Blocking || h.Strict
	if h.Buffer == 0 {
		h.Buffer = 10000
	}
	if h.MaxBatch == 0 {
		h.MaxBatch = 400
	}
	if h.MaxWait == 0 {
		h.MaxWait = 30 * time.Second
	}
	if h.Retry == 0 {
		h.Retry = 10 * time.Second
	}
	return h
}

var errHookFull = errors.New("the buffer is full: the webhook takes the events more slowly than they come")

// sender sends the events of a Hook in the background.
type sender struct {
	Hook
	dropped func(n int, first bool, err error)

	lines chan []byte
	held  atomic.Int64  // the bytes of the events that wait or are being sent
	next  []byte        // for the next batch; only run uses it
	stop  chan struct{} // closed when no more events come
	once  sync.Once
	done  chan struct{}
}

func newSender(h Hook, lost func(int, bool, error)) *sender {
	s := &sender{Hook: h.withDefaults(), dropped: lost, stop: make(chan struct{}), done: make(chan struct{})}
	s.lines = make(chan []byte, s.Buffer)
	if s.Blocking {
		close(s.done)
		return s
	}
	go s.run() // ends in close, which waits for it
	return s
}

// put takes an event, and reports whether its request may proceed. It never waits, unless the hook is a blocking one.
func (s *sender) put(line []byte) bool {
	if s.Blocking {
		return s.send([][]byte{line}) || !s.Strict
	}
	select {
	case <-s.stop:
		s.dropped(1, false, errClosed)
		return true
	default:
	}
	if s.held.Add(int64(len(line))) <= maxHookBytes {
		select {
		case s.lines <- line:
			return true
		default:
		}
	}
	s.held.Add(-int64(len(line)))
	s.dropped(1, true, errHookFull)
	return true
}

func (s *sender) run() {
	defer close(s.done)
	for {
		batch, more := s.collect()
		if len(batch) > 0 {
			s.send(batch)
		}
		for _, line := range batch {
			s.held.Add(-int64(len(line)))
		}
		if !more {
			return
		}
		s.sleep(hookPause)
	}
}

// collect waits for a batch of events, and reports whether more may come.
func (s *sender) collect() (batch [][]byte, more bool) {
	size := 0
	if s.next != nil {
		batch, size, s.next = [][]byte{s.next}, len(s.next), nil
	} else {
		select {
		case line := <-s.lines:
			batch, size = append(batch, line), len(line)
		case <-s.stop:
			return s.rest(nil), false
		}
	}
	timer := time.NewTimer(s.MaxWait)
	defer timer.Stop()
	for len(batch) < s.MaxBatch {
		select {
		case line := <-s.lines:
			if size += len(line); size > maxHookBatch {
				s.next = line
				return batch, true
			}
			batch = append(batch, line)
		case <-timer.C:
			return batch, true
		case <-s.stop:
			return s.rest(batch), false
		}
	}
	return batch, true
}

// rest adds what waits when no more comes.
func (s *sender) rest(batch [][]byte) [][]byte {
	for {
		select {
		case line := <-s.lines:
			batch = append(batch, line)
		default:
			return batch
		}
	}
}

// send sends a batch, with retries, and reports whether it arrived.
func (s *sender) send(batch [][]byte) bool {
	body := list(batch)
	pause := s.Retry
	for try := 1; ; try++ {
		err := s.Post(body)
		if err == nil {
			return true
		}
		if try == hookTries || !s.sleep(pause) {
			s.dropped(len(batch), true, err)
			return false
		}
		pause += pause / 2
	}
}

// sleep waits, and reports whether it was not interrupted by close.
func (s *sender) sleep(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-s.stop:
		return false
	}
}

// close sends what waits, without retries.
func (s *sender) close() {
	s.once.Do(func() { close(s.stop) })
	<-s.done
}

// list returns an EventList of encoded events.
func list(events [][]byte) []byte {
	var b bytes.Buffer
	b.WriteString(`{"kind":"EventList","apiVersion":"` + auditv1.SchemeGroupVersion.String() + `","metadata":{},"items":[`)
	for i, e := range events {
		if i > 0 {
			b.WriteByte(',')
		}
		b.Write(bytes.TrimSpace(e))
	}
	b.WriteString("]}")
	return b.Bytes()
}
