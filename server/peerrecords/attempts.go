package peerrecords

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/types"

	"proa.dev/why/answer"
)

// maxAttempts is of how many Pods one question asks for attempts, and maxNodes how many nodes an attempt has: more than a scheduler keeps.
const maxAttempts, maxNodes = 1000, 1000

// podAttempt is the last attempt to place a Pod.
type podAttempt struct {
	Pod     types.UID      `json:"pod"`
	Attempt answer.Attempt `json:"attempt"`
}

// addAttempts adds to an answer what the scheduler of this server found.
func (p *Peers) addAttempts(out *reply, pods []types.UID) {
	if p.Attempt == nil {
		return
	}
	for _, pod := range pods {
		a, err := p.Attempt(pod)
		if out.Schedules = err == nil || out.Schedules; a == nil {
			continue
		}
		if len(pods) > 1 {
			a.Nodes = nil
		}
		out.Attempts = append(out.Attempts, podAttempt{pod, *a})
	}
}

// Attempts asks the other servers what their schedulers found when they last tried to place Pods. isKnown says that a server has answered
// whose scheduler runs, so that there is nothing about the Pods that were not found.
func (p *Peers) Attempts(ctx context.Context, pods []types.UID) (found map[types.UID]*answer.Attempt, isKnown bool, missing []Missing) {
	found = map[types.UID]*answer.Attempt{}
	if p == nil || len(pods) == 0 {
		return found, false, nil
	}
	if may, missing := mayAsk(ctx); !may {
		return found, false, missing
	}
	ctx, stop := context.WithTimeout(ctx, askTimeout)
	defer stop()
	defer func() { noteSilence(ctx, missing) }()
	alive, missing := p.alive(ctx)
	for part := range slices.Chunk(pods, maxAttempts) {
		body, err := json.Marshal(question{Attempts: part})
		if err != nil {
			return found, false, missing
		}
		var mu sync.Mutex // guards found, isKnown and missing
		var wg sync.WaitGroup
		for _, o := range alive {
			wg.Go(func() {
				text, err := p.send(ctx, o, body)
				var got *reply
				if err == nil {
					got, err = readAttempts(text, o.name, part)
				}
				mu.Lock()
				defer mu.Unlock()
				if err != nil {
					missing = append(missing, Missing{Text: o.String() + ": " + plain(err)})
					return
				}
				isKnown = isKnown || got.Schedules
				for i := range got.Attempts {
					a := &got.Attempts[i]
					if have := found[a.Pod]; have == nil || have.Time.Before(a.Attempt.Time) { // the scheduler may have moved
						found[a.Pod] = &a.Attempt
					}
				}
			})
		}
		wg.Wait()
	}
	return found, isKnown, missing
}

// readAttempts reads the answer of the server with a name about Pods.
func readAttempts(body []byte, server string, asked []types.UID) (*reply, error) {
	var a reply
	if err := decodeStrictly(bytes.NewReader(body), &a); err != nil {
		return nil, fmt.Errorf("its answer cannot be read: %w", err)
	}
	if a.Server != server {
		return nil, errors.New("another server has answered at its address")
	}
	if len(a.Attempts) > len(asked) {
		return nil, errors.New("its answer has too many attempts")
	}
	for i := range a.Attempts {
		if one := &a.Attempts[i]; !slices.Contains(asked, one.Pod) || len(one.Attempt.Nodes) > maxNodes {
			return nil, errors.New("its answer has an attempt that cannot be")
		}
	}
	return &a, nil
}
