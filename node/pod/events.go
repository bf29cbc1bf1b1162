package pod

import (
	"context"
	"os"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"proa.dev/internal/wait"
	"proa.dev/node/cri"
)

// followRuntimeEvents wakes workers when the runtime reports an event about their containers.
func (m *Manager) followRuntimeEvents(ctx context.Context) {
	retry := wait.Backoff{First: 50 * time.Millisecond, Max: 2 * time.Second}
	for ctx.Err() == nil {
		stream, err := m.Client.GetContainerEvents(ctx, &cri.GetEventsRequest{})
		for err == nil {
			var ev *cri.ContainerEvent
			if ev, err = stream.Recv(); err != nil {
				break
			}
			retry.Reset()
			m.Wake(types.UID(ev.GetPodSandboxStatus().GetMetadata().GetUid()))
		}
		if retry.Sleep(ctx) != nil {
			return
		}
		m.Resync(ctx) // the stream was interrupted, so events may have been missed
	}
}

// Resync wakes every worker, and finds orphans: sandboxes, logs, volumes and cgroups that belong to no Pod, because an
// agent that was killed has left them.
func (m *Manager) Resync(ctx context.Context) {
	m.mu.Lock()
	for _, w := range m.workers {
		w.wake.Send()
	}
	seen := m.sourcesComplete
	m.mu.Unlock()
	if !seen {
		return
	}
	boxes, err := m.Client.ListPodSandbox(ctx, &cri.ListPodSandboxRequest{})
	if err != nil {
		return // the event stream fails too, and calls this again
	}
	for _, b := range boxes.Items {
		if uid := b.Labels[LabelUID]; uid != "" {
			m.addOrphan(types.UID(uid), b.Labels[LabelNamespace], b.Labels[LabelName])
		}
	}
	m.findLogOrphans()
	left, err := m.Volumes.PodUIDs(ctx)
	if err != nil {
		m.Log.Warn("cannot see whose volumes are here", "err", err)
	}
	groups, err := m.Cgroups.PodUIDs()
	if err != nil {
		m.Log.Warn("cannot see whose groups are here", "err", err)
	}
	for _, uid := range append(left, groups...) {
		m.addOrphan(uid, "", "")
	}
}

// findLogOrphans finds Pods of which only the logs are left.
func (m *Manager) findLogOrphans() {
	folders, err := os.ReadDir(m.Logs)
	if err != nil {
		return // there are none yet
	}
	for _, f := range folders {
		if parts := strings.Split(f.Name(), "_"); len(parts) == 3 {
			m.addOrphan(types.UID(parts[2]), parts[0], parts[1])
		}
	}
}
