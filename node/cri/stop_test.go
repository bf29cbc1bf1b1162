package cri

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimev1 "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// stoppingRuntime takes a time to send a signal. Containers whose name begins with "deaf" end only when they are killed.
type stoppingRuntime struct {
	runtimev1.RuntimeServiceClient
	sendTime time.Duration
	mu       sync.Mutex
	now      int // requests that send a signal at this moment
	most     int
	killed   int
}

func (r *stoppingRuntime) StopContainer(ctx context.Context, in *StopContainerRequest, _ ...grpc.CallOption) (
	*runtimev1.StopContainerResponse, error) {
	r.mu.Lock()
	r.now++
	r.most = max(r.most, r.now)
	if in.Timeout == 0 {
		r.killed++
	}
	r.mu.Unlock()
	time.Sleep(r.sendTime)
	r.mu.Lock()
	r.now--
	r.mu.Unlock()
	if in.Timeout == 0 || in.ContainerId[:4] != "deaf" {
		return &runtimev1.StopContainerResponse{}, nil
	}
	select {
	case <-ctx.Done():
		return nil, status.FromContextError(ctx.Err()).Err()
	case <-time.After(time.Duration(in.Timeout) * time.Second):
		return nil, status.Error(codes.Internal, "the runtime kills the container by itself")
	}
}

// TestStopSlots checks how many signals are sent at the same time to the containers of a large Pod, that all containers end, and that those
// that ignore their stop signal are killed.
func TestStopSlots(t *testing.T) {
	for _, c := range []struct {
		all, deaf int
		sharePIDs bool
		sendTime  time.Duration
		atOnce    int // signals sent at the same time
		within    time.Duration
	}{
		{all: 50, deaf: 20, sendTime: 50 * time.Millisecond, atOnce: 8, within: 7 * time.Second},
		{all: 50, deaf: 50, sendTime: 50 * time.Millisecond, atOnce: 8, within: 10 * time.Second},
		{all: 50, deaf: 20, sendTime: 900 * time.Millisecond, atOnce: 8, within: 15 * time.Second}, // a busy machine
		{all: 20, deaf: 5, sharePIDs: true, sendTime: 50 * time.Millisecond, atOnce: 2, within: 6 * time.Second},
	} {
		synctest.Test(t, func(t *testing.T) {
			r := &stoppingRuntime{sendTime: c.sendTime}
			client := &Client{RuntimeServiceClient: r}
			slots := NewStopSlots(c.all, c.sharePIDs)
			began := time.Now()
			var wg sync.WaitGroup
			for i := range c.all {
				wg.Go(func() {
					id := fmt.Sprintf("good%d", i)
					if i < c.deaf {
						id = fmt.Sprintf("deaf%d", i)
					}
					isGraceOver, err := client.Stop(t.Context(), id, 2*time.Second, slots)
					if err != nil || isGraceOver != (i < c.deaf) {
						t.Errorf("%s: killed %v, %v", id, isGraceOver, err)
					}
				})
			}
			wg.Wait()
			if took := time.Since(began); r.most != c.atOnce || r.killed != c.deaf || took > c.within {
				t.Errorf("%+v: %d signals at the same time, %d killed, in %v", c, r.most, r.killed, took)
			}
		})
	}
}

// TestStopOfSmallPods checks that containers of a Pod that has few are stopped at once, by one request each.
func TestStopOfSmallPods(t *testing.T) {
	if NewStopSlots(parallelStops, false) != nil || NewStopSlots(parallelSharedStops, true) != nil {
		t.Error("a small Pod has a limit")
	}
	synctest.Test(t, func(t *testing.T) {
		client := &Client{RuntimeServiceClient: &stoppingRuntime{}}
		isGraceOver, err := client.Stop(t.Context(), "deaf", 3*time.Second, nil)
		if status.Code(err) != codes.Internal || !isGraceOver {
			t.Errorf("the runtime was not left to kill the container: %v, %v", isGraceOver, err)
		}
	})
}
