package podsource

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"

	"proa.dev/client"
	"proa.dev/internal/wait"
	"proa.dev/kinds/lib/gr"
)

// watchAPI follows the Pods that the API binds to the node.
func (s *Source) watchAPI(ctx context.Context) {
	retry := wait.Backoff{First: 100 * time.Millisecond, Max: 10 * time.Second}
	for ctx.Err() == nil {
		view, err := s.Client.Part(ctx, gr.Pods, client.Scope{Node: s.Node})
		if err == nil {
			err = view.Reach(ctx, 0)
		}
		if err != nil {
			if ctx.Err() == nil {
				s.Log.Error("the Pods of the node cannot be watched", "node", s.Node, "err", err)
			}
			if retry.Sleep(ctx) != nil {
				return
			}
			continue
		}
		s.read(ctx, view)
		for e := range view.Events(ctx) {
			if e.Gap {
				s.read(ctx, view)
				continue
			}
			p, ok := e.Object.(*corev1.Pod)
			if !ok {
				continue
			}
			if isMirror(p) {
				s.recordMirror(ctx, p, e.Deleted)
			} else {
				s.send(ctx, batch{source: FromAPI, all: []*corev1.Pod{p}, gone: e.Deleted})
			}
		}
		if retry.Sleep(ctx) != nil {
			return
		}
	}
}

// read lists all Pods of a view.
func (s *Source) read(ctx context.Context, view client.View) {
	var pods []*corev1.Pod
	mirrors := map[name]*corev1.Pod{}
	for o := range view.List("") {
		p, ok := o.(*corev1.Pod)
		switch {
		case !ok:
		case isMirror(p):
			mirrors[nameOf(p)] = p
		default:
			pods = append(pods, p)
		}
	}
	s.mu.Lock()
	s.watched = true
	for at := range s.mirrors {
		if mirrors[at] == nil {
			delete(s.mirrors, at)
		}
	}
	s.mu.Unlock()
	for _, m := range mirrors {
		s.recordMirror(ctx, m, false)
	}
	s.mirrorsChanged.Send()
	s.send(ctx, batch{source: FromAPI, all: pods, whole: true})
}

// isMirror reports whether a Pod of the API claims to be a mirror Pod, which only shows a static Pod of a node. A node
// never runs such a Pod, whoever created it: admission policies often exempt mirror Pods, because these cannot be
// prevented.
func isMirror(p *corev1.Pod) bool {
	_, is := p.Annotations[corev1.MirrorPodAnnotationKey]
	return is
}

// fromMirror is the source of updates about a static Pod that its mirror Pod causes.
const fromMirror = "mirror"

// recordMirror records a mirror Pod. If it is new, its static Pod is sent again as an update with the mirror's status,
// because the status must now be written there.
func (s *Source) recordMirror(ctx context.Context, m *corev1.Pod, deleted bool) {
	s.mu.Lock()
	have := s.mirrors[nameOf(m)]
	switch {
	case !deleted:
		s.mirrors[nameOf(m)] = m
	case have != nil && have.UID == m.UID:
		delete(s.mirrors, nameOf(m))
	}
	var static *corev1.Pod
	for _, p := range s.statics() {
		if s.owns(m) && nameOf(p) == nameOf(m) && p.Annotations[hashAnnotation] == m.Annotations[corev1.MirrorPodAnnotationKey] {
			static = p
		}
	}
	s.mu.Unlock()
	s.mirrorsChanged.Send()
	if static != nil && !deleted && (have == nil || have.UID != m.UID) {
		p := *static
		p.ResourceVersion, p.Status = m.ResourceVersion, m.Status
		s.send(ctx, batch{source: fromMirror, all: []*corev1.Pod{&p}})
	}
}
