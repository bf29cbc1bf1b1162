package source

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"

	"proa.dev/client"
	"proa.dev/kinds/gr"
	"proa.dev/node/clock"
)

// watch follows the Pods that the API binds to the node.
func (s *Source) watch(ctx context.Context) {
	for wait := 100 * time.Millisecond; ctx.Err() == nil; wait = min(2*wait, 10*time.Second) {
		view, err := s.Client.Part(ctx, gr.Pods, client.Scope{Node: s.Node})
		if err == nil {
			err = view.Reach(ctx, 0)
		}
		if err != nil {
			if ctx.Err() == nil {
				s.Log.Error("the Pods of the node cannot be watched", "node", s.Node, "err", err)
			}
			if !clock.Sleep(ctx, wait) {
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
				s.mirror(ctx, p, e.Deleted)
			} else {
				s.tell(ctx, batch{source: FromAPI, all: []*corev1.Pod{p}, gone: e.Deleted})
			}
		}
		if !clock.Sleep(ctx, wait) {
			return
		}
	}
}

// read takes everything that a view has.
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
		s.mirror(ctx, m, false)
	}
	s.poke()
	s.tell(ctx, batch{source: FromAPI, all: pods, whole: true})
}

// isMirror reports whether a Pod of the API says that it only shows what a node runs by itself. A node never runs such a Pod, whoever
// made it: policies that people write for Pods often leave mirror Pods out, because these cannot be prevented.
func isMirror(p *corev1.Pod) bool {
	_, is := p.Annotations[corev1.MirrorPodAnnotationKey]
	return is
}

// fromMirror is the source of news about a static Pod that its mirror brings.
const fromMirror = "mirror"

// mirror takes note of a Pod that only shows what the node runs by itself. When it is a new one, its static Pod is told again,
// with what the mirror says of it: the status must be written there now.
func (s *Source) mirror(ctx context.Context, m *corev1.Pod, deleted bool) {
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
	s.poke()
	if static != nil && !deleted && (have == nil || have.UID != m.UID) {
		p := *static
		p.ResourceVersion, p.Status = m.ResourceVersion, m.Status
		s.tell(ctx, batch{source: fromMirror, all: []*corev1.Pod{&p}})
	}
}
