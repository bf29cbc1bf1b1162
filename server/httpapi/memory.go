package httpapi

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

	"proa.dev/kinds/lib/codec"
	"proa.dev/server"
	"proa.dev/server/apistatus"
	"proa.dev/server/memorybudget"
	"proa.dev/server/responsewriter"
)

// DefaultMemory is the default of Config.Memory.
const DefaultMemory = 1 << 30

const (
	// freeCost is the cost up to which decoding a body needs no lease.
	freeCost = 256 << 10
	// maxCost is the cost from which a body is refused: no object that fits into the store needs that much memory.
	maxCost = 256 << 20
	// applyCost is the factor by which server-side apply costs more than decoding the object: for sets of fields, and
	// copies.
	applyCost = 2
	// mergeCost is what a merge patch costs for every byte and each level above it, and mergeDepth is how deep it may
	// be nested.
	mergeCost, mergeDepth = 3, 1000
)

// memoryBudgets bound the memory of requests over HTTP. Every request leases from the three budgets in this order, so
// that requests cannot wait for each other in a circle.
type memoryBudgets struct {
	answers  *memorybudget.Budget // answers that are being encoded or sent
	bodies   *memorybudget.Budget // bodies that are being read or were read
	decoding *memorybudget.Budget // objects that are decoded from bodies
}

// newMemoryBudgets divides the total into the three budgets.
func newMemoryBudgets(total int64) memoryBudgets {
	return memoryBudgets{answers: memorybudget.New(total * 3 / 8), bodies: memorybudget.New(total / 8),
		decoding: memorybudget.New(total / 2)}
}

// RequestMemory returns how many bytes requests hold for answers, for bodies, and for decoding these.
func (s *Handler) RequestMemory() (answers, bodies, decoding int64) {
	answers, _ = s.memory.answers.Held()
	bodies, _ = s.memory.bodies.Held()
	decoding, _ = s.memory.decoding.Held()
	return answers, bodies, decoding
}

// leaseError makes the error for too many waiting requests the 429 that clients know.
func leaseError(err error) error {
	if errors.Is(err, memorybudget.ErrBusy) {
		return apistatus.TooManyRequests()
	}
	return err
}

// leaseAnswer leases memory for the answer of a request, before anything else is done for it. Requests that are exempt
// from priority and fairness, those of administrators and health probes, do not wait for memory either.
func (s *Handler) leaseAnswer(ctx context.Context, w *responsewriter.Writer, rt *route, by *requester) (err error) {
	user := by.GetName()
	if by.flow.Level == flowcontrolv1.PriorityLevelConfigurationNameExempt {
		size := int64(responsewriter.PieceSize)
		if !rt.resource { // a health probe is small, and is not kept out by what unauthenticated clients hold
			size, user = responsewriter.MinRequestMemory, "probes of "+user
		}
		var ok bool
		if w.Memory, ok = s.memory.answers.Exempt(user, size); ok {
			return nil
		}
	}
	w.Memory, err = s.memory.answers.Take(ctx, user, responsewriter.PieceSize)
	return leaseError(err)
}

// leaseErrorAnswer leases the little memory of an answer with an error, also for an unauthenticated client and for a
// stream that does not begin. It returns false when the clients of a user have left very many such answers unread; then
// there is no answer.
func (s *Handler) leaseErrorAnswer(w *responsewriter.Writer) bool {
	w.Memory.Shrink(responsewriter.MinRequestMemory)
	if w.Memory != (memorybudget.Lease{}) || w.Code != 0 {
		return true
	}
	var ok bool
	if w.Memory, ok = s.memory.answers.Force(w.User, responsewriter.MinRequestMemory); !ok {
		w.SendError = http.ErrAbortHandler
		return false
	}
	w.Streaming = false
	return true
}

// leaseBody leases memory for a body of a length, which is -1 when the client did not send it.
func (s *Handler) leaseBody(ctx context.Context, w *responsewriter.Writer, r *server.Request, length int64) error {
	if length < 0 || length > maxBody {
		length = maxBody
	}
	if length <= responsewriter.MinRequestMemory {
		return nil
	}
	var err error
	w.BodyMemory[0], err = s.memory.bodies.Take(ctx, r.User.GetName(), length)
	return leaseError(err)
}

// leaseDecoding leases memory for decoding the body of a request, and refuses a body that would take too much.
func (s *Handler) leaseDecoding(ctx context.Context, w *responsewriter.Writer, r *server.Request, contentType string) error {
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
			return apistatus.BadRequest("the patch has values within each other %d levels deep and the limit is %d; send the object as a whole", deepest, mergeDepth)
		}
		cost += mergeCost * sum
	}
	if cost <= freeCost || media == codec.JSON && !json.Valid(r.Body) {
		return nil // invalid JSON is refused before anything is decoded
	}
	if cost > maxCost {
		return apierrors.NewRequestEntityTooLargeError(fmt.Sprintf(
			"decoding the body would take about %d MiB of memory and the limit is %d MiB; it has too many values for its size, send fewer", cost>>20, maxCost>>20))
	}
	var err error
	w.BodyMemory[1], err = s.memory.decoding.Take(ctx, r.User.GetName(), cost*times)
	return leaseError(err)
}

// releaseBody gives back the memory of a request's body.
func releaseBody(w *responsewriter.Writer, r *server.Request) {
	for i := range w.BodyMemory {
		w.BodyMemory[i].Release()
	}
	r.Body = nil
}

// requestTimeout is how long a request may take that is not long-running.
const requestTimeout = time.Minute

// timeoutOf returns the timeout of a request: what the client asks for, up to requestTimeout.
func timeoutOf(req *http.Request) (time.Duration, error) {
	value := req.URL.Query().Get("timeout")
	if value == "" {
		return requestTimeout, nil
	}
	d, err := time.ParseDuration(value)
	if err != nil {
		return 0, apistatus.BadRequest("invalid timeout specified in the request URL - %s", err)
	}
	if d <= 0 || d > requestTimeout {
		d = requestTimeout
	}
	return d, nil
}
