package peerrecords

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

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
	missing = p.inquire(ctx, func(ctx context.Context, n *inquiry) {
		for part := range slices.Chunk(pods, maxAttempts) {
			read := func(o peer, body []byte) (reply, error) { return readAttempts(body, o.name, part, time.Now()) }
			for _, a := range askAll(ctx, n, &question{Attempts: part}, read) {
				isKnown = isKnown || a.Schedules
				addNewest(found, a.Attempts)
			}
		}
	})
	return found, isKnown, missing
}

// addNewest adds attempts to those that were found, unless there is a newer one of the same Pod: the scheduler may have moved.
func addNewest(found map[types.UID]*answer.Attempt, attempts []podAttempt) {
	for i := range attempts {
		a := &attempts[i]
		if have := found[a.Pod]; have == nil || have.Time.Before(a.Attempt.Time) {
			found[a.Pod] = &a.Attempt
		}
	}
}

// readAttempts reads the answer of the server with a name about Pods.
func readAttempts(body []byte, server string, asked []types.UID, now time.Time) (reply, error) {
	var a reply
	if err := decodeStrictly(bytes.NewReader(body), &a); err != nil {
		return reply{}, fmt.Errorf("its answer cannot be read: %w", err)
	}
	if a.Server != server {
		return reply{}, errors.New("another server has answered at its address")
	}
	if len(a.Attempts) > len(asked) {
		return reply{}, errors.New("its answer has too many attempts")
	}
	for i := range a.Attempts {
		one := &a.Attempts[i]
		if !slices.Contains(asked, one.Pod) || len(one.Attempt.Nodes) > maxNodes || one.Attempt.Time.After(now.Add(maxSkew)) {
			return reply{}, errors.New("its answer has an attempt that cannot be")
		}
	}
	return a, nil
}
