package pod

import (
	"context"
	"os"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"proa.dev/node/cri"
)

// follow wakes workers when the runtime says that something has happened to their containers.
func (m *Manager) follow(ctx context.Context) {
	for pause := 50 * time.Millisecond; ctx.Err() == nil; pause = min(2*pause, 2*time.Second) {
		stream, err := m.Client.GetContainerEvents(ctx, &cri.GetEventsRequest{})
		for err == nil {
			var ev *cri.ContainerEvent
			if ev, err = stream.Recv(); err != nil {
				break
			}
			pause = 50 * time.Millisecond
			m.Wake(types.UID(ev.GetPodSandboxStatus().GetMetadata().GetUid()))
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
		m.Relook(ctx) // the runtime was away: who knows what has happened
	}
}

// Relook wakes every worker, and finds what belongs to no Pod: sandboxes, logs, volumes and groups that an agent which was
// killed has left.
func (m *Manager) Relook(ctx context.Context) {
	m.mu.Lock()
	for _, w := range m.workers {
		w.poke()
	}
	seen := m.seen
	m.mu.Unlock()
	if !seen {
		return
	}
	boxes, err := m.Client.ListPodSandbox(ctx, &cri.ListPodSandboxRequest{})
	if err != nil {
		return // the stream of events fails too, and comes back here
	}
	for _, b := range boxes.Items {
		if uid := b.Labels[LabelUID]; uid != "" {
			m.orphan(types.UID(uid), b.Labels[LabelNamespace], b.Labels[LabelName])
		}
	}
	m.logged()
	left, err := m.Volumes.Left(ctx)
	if err != nil {
		m.Log.Warn("cannot see whose volumes are here", "err", err)
	}
	groups, err := m.Cgroups.Left()
	if err != nil {
		m.Log.Warn("cannot see whose groups are here", "err", err)
	}
	for _, uid := range append(left, groups...) {
		m.orphan(uid, "", "")
	}
}

// logged finds Pods of which nothing but their logs may be left.
func (m *Manager) logged() {
	folders, err := os.ReadDir(m.Logs)
	if err != nil {
		return // there are none yet
	}
	for _, f := range folders {
		if parts := strings.Split(f.Name(), "_"); len(parts) == 3 {
			m.orphan(types.UID(parts[2]), parts[0], parts[1])
		}
	}
}
