package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"proa.dev/kinds/codec"
	"proa.dev/server/budget"
)

// DefaultMemory is how many bytes requests may hold together, unless Config.Memory says otherwise.
const DefaultMemory = 1 << 30

const (
	// piece is how much of an answer is encoded before it is sent. A longer answer is sent in pieces, and one of a single piece
	// is encoded as a whole, so that its length is known. It is also the size from which an answer is worth compressing.
	piece = 128 << 10
	// leastHeld is what a request in flight holds at least: its goroutine, its fields and those of its answer.
	leastHeld = 8 << 10
	// freeCost is the cost of decoding a body that is covered by what every request holds.
	freeCost = 256 << 10
	// maxCost refuses a body that is absurd: nothing that fits into the store is worth as much memory.
	maxCost = 256 << 20
	// applyCost is how much more server-side apply makes of a body, beside the object: sets of fields, and copies.
	applyCost = 2
	// mergeCost is what a merge patch costs for every byte and level above it, and mergeDepth is how deep it may be.
	mergeCost, mergeDepth = 3, 1000
)

// memory bounds the memory of requests that came by HTTP. Requests lease from the three budgets in this order, so that none
// holds what another one waits for.
type memory struct {
	answers  *budget.Budget // answers that are being encoded or sent
	bodies   *budget.Budget // bodies that are being read or were read
	decoding *budget.Budget // objects made of bodies, and what is made on the way
}

func newMemory(total int64) memory {
	return memory{answers: budget.New(total * 3 / 8), bodies: budget.New(total / 8), decoding: budget.New(total / 2)}
}

// RequestMemory is how many bytes requests hold for answers, for bodies, and for decoding these.
func (s *Server) RequestMemory() (answers, bodies, decoding int64) {
	answers, _ = s.memory.answers.Held()
	bodies, _ = s.memory.bodies.Held()
	decoding, _ = s.memory.decoding.Held()
	return answers, bodies, decoding
}

// leased makes an answer of what became of the wait for memory.
func leased(err error) error {
	if errors.Is(err, budget.ErrBusy) {
		return tooMany()
	}
	return err
}

// admit leases the memory of an answer for a request, before anything is done for it. Requests that are exempt from waiting for
// a seat, those of administrators and probes of health, do not wait for memory either.
func (s *Server) admit(ctx context.Context, w *recorder, rt *route, by *asker) (err error) {
	user := by.GetName()
	if by.flow.Level == flowcontrolv1.PriorityLevelConfigurationNameExempt {
		size := int64(piece)
		if !rt.resource { // a probe: it is small, and what else strangers hold does not keep it out
			size, user = leastHeld, "probes of "+user
		}
		var ok bool
		if w.lease, ok = s.memory.answers.Exempt(user, size); ok {
			return nil
		}
	}
	w.lease, err = s.memory.answers.Take(ctx, user, piece)
	return leased(err)
}

// admitRefusal sees to it that an answer which says why there is no other one holds memory, but little: also one to a stranger, or about
// a stream that does not begin. A user whose clients have not read very many of these is not answered at all.
func (s *Server) admitRefusal(w *recorder) bool {
	w.lease.Shrink(leastHeld)
	if w.lease != (budget.Lease{}) || w.code != 0 {
		return true
	}
	var ok bool
	if w.lease, ok = s.memory.answers.Force(w.user, leastHeld); !ok {
		w.broken = http.ErrAbortHandler
		return false
	}
	w.lasting = false
	return true
}

// admitBody leases memory for a body of a length, which is -1 when the client does not say it.
func (s *Server) admitBody(ctx context.Context, r *Request, length int64) error {
	if length < 0 || length > maxBody {
		length = maxBody
	}
	if length <= leastHeld {
		return nil
	}
	var err error
	r.leases[0], err = s.memory.bodies.Take(ctx, r.User.GetName(), length)
	return leased(err)
}

// admitDecoding leases what decoding the body of a request costs, and refuses a body for which that is absurd.
func (s *Server) admitDecoding(ctx context.Context, r *Request, contentType string) error {
	media, known := codec.MediaOf(contentType)
	times := int64(1)
	switch {
	case r.Patch == types.ApplyPatchType:
		media, times = codec.YAML, applyCost
	case !known:
		media = codec.JSON
	}
	cost := codec.Cost(media, r.Body)
	if r.Patch == types.MergePatchType {
		deepest, sum := codec.Nesting(r.Body)
		if deepest > mergeDepth && json.Valid(r.Body) {
			return badRequest("the patch has values within each other %d levels deep and the limit is %d; send the object as a whole", deepest, mergeDepth)
		}
		cost += mergeCost * sum
	}
	if cost <= freeCost || media == codec.JSON && !json.Valid(r.Body) {
		return nil // decoding of JSON begins by seeing that it is not sound, and makes nothing
	}
	if cost > maxCost {
		return apierrors.NewRequestEntityTooLargeError(fmt.Sprintf(
			"decoding the body would take about %d MiB of memory and the limit is %d MiB; it has too many values for its size, send fewer", cost>>20, maxCost>>20))
	}
	var err error
	r.leases[1], err = s.memory.decoding.Take(ctx, r.User.GetName(), cost*times)
	return leased(err)
}

// release gives back what a request holds for its body.
func (r *Request) release() {
	for i := range r.leases {
		r.leases[i].Release()
	}
	r.Body = nil
}

// The longest time for which a client may not take a piece of its answer: while nobody else needs what the answer holds, and
// when somebody does. Whoever is slower than a piece in that time is cut off.
const (
	stallLimit    = 30 * time.Second
	stallContest  = 5 * time.Second
	stallInterval = time.Second
)

// requestTimeout is how long a request may take that does not last.
const requestTimeout = time.Minute

// timeoutOf reads how long a client wants its request to take. What is not positive, or too long, means the usual.
func timeoutOf(req *http.Request) (time.Duration, error) {
	value := req.URL.Query().Get("timeout")
	if value == "" {
		return requestTimeout, nil
	}
	d, err := time.ParseDuration(value)
	if err != nil {
		return 0, badRequest("invalid timeout specified in the request URL - %s", err)
	}
	if d <= 0 || d > requestTimeout {
		d = requestTimeout
	}
	return d, nil
}
