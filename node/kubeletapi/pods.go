package kubeletapi

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"proa.dev/node/fact"
	"proa.dev/node/pod"
	"proa.dev/node/podstate"
)

// find returns the Pod of a request. If the request has a UID, it must match.
func (s *Server) find(r *http.Request) (pod.Local, bool) {
	ns, name, uid := r.PathValue("ns"), r.PathValue("pod"), types.UID(r.PathValue("uid"))
	all := s.Pods.Pods()
	at := slices.IndexFunc(all, func(l pod.Local) bool {
		return l.Pod != nil && l.Pod.Namespace == ns && l.Pod.Name == name && (uid == "" || l.Pod.UID == uid)
	})
	if at < 0 {
		return pod.Local{}, false
	}
	return all[at], true
}

// runningIn returns the running run of a container.
func runningIn(l pod.Local, name string) (*fact.Container, bool) {
	if l.Facts == nil {
		return nil, false
	}
	c, found := l.Facts.Of(name)
	if !found || c.State != fact.Running {
		return nil, false
	}
	return c, true
}

// specOf returns a container of any kind from the spec of a Pod, nil if there is none.
func specOf(p *corev1.Pod, name string) *corev1.Container {
	c, _ := podstate.FindContainer(p, name)
	return c
}

// pods lists the Pods that are assigned to the node.
func (s *Server) pods(w http.ResponseWriter, _ *http.Request) {
	var all []corev1.Pod
	for _, l := range s.Pods.Pods() {
		if l.Pod != nil {
			all = append(all, *l.Pod)
		}
	}
	sendPods(w, all)
}

// running lists the Pods that have running containers, as far as the runtime knows them.
func (s *Server) running(w http.ResponseWriter, _ *http.Request) {
	var all []corev1.Pod
	for _, l := range s.Pods.Pods() {
		f := l.Facts
		if f == nil {
			continue
		}
		p := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: f.Namespace, Name: f.Name, UID: f.UID}}
		for i := range f.Containers {
			if c := &f.Containers[i]; c.State == fact.Running {
				p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: c.Name, Image: c.Image})
			}
		}
		if len(p.Spec.Containers) > 0 {
			all = append(all, p)
		}
	}
	sendPods(w, all)
}

func sendPods(w http.ResponseWriter, all []corev1.Pod) {
	slices.SortFunc(all, func(a, b corev1.Pod) int { return strings.Compare(a.Namespace+"/"+a.Name, b.Namespace+"/"+b.Name) })
	sendJSON(w, &corev1.PodList{TypeMeta: metav1.TypeMeta{Kind: "PodList", APIVersion: "v1"}, Items: all})
}

// containerEnds reports the ends of containers to readers that follow logs.
type containerEnds struct{ pods Pods }

// endPollPeriod is how often a container is checked, only while its log is followed.
const endPollPeriod = 250 * time.Millisecond

// Ended returns a channel that is closed when the container has ended.
func (l containerEnds) Ended(ctx context.Context, id string) <-chan struct{} {
	over := make(chan struct{})
	go func() { // ends with the container, or when the log is no longer followed
		defer close(over)
		tick := time.NewTicker(endPollPeriod)
		defer tick.Stop()
		for l.runs(id) {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
		}
	}()
	return over
}

func (l containerEnds) runs(id string) bool {
	for _, p := range l.pods.Pods() {
		if p.Facts == nil {
			continue
		}
		for i := range p.Facts.Containers {
			if c := &p.Facts.Containers[i]; c.ID == id {
				return c.State == fact.Running
			}
		}
	}
	return false
}
