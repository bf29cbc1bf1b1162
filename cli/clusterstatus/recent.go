package clusterstatus

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"

	"proa.dev/cli/localcluster"
	"proa.dev/why/answer"
)

const (
	// staleLease is how old the Lease of a node that is called ready may be. The controllers call a node unknown after 50 seconds.
	staleLease = 2 * time.Minute
	// evictionsOf is how long an eviction counts as a problem of the cluster.
	evictionsOf = time.Hour
	// askedObjects bounds the objects that are read to look for either.
	askedObjects = 500
)

// addRecent adds nodes that have not renewed their Leases, and Pods that were evicted lately.
func (s *Status) addRecent(ctx context.Context, a *localcluster.Access, now time.Time) {
	var leases coordinationv1.LeaseList
	var pods corev1.PodList
	for path, into := range map[string]any{
		"/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases?": &leases, "/api/v1/pods?fieldSelector=status.phase%3DFailed&": &pods} {
		body, err := a.GetOK(ctx, fmt.Sprintf("%slimit=%d", path, askedObjects))
		if err == nil {
			err = json.Unmarshal(body, into)
		}
		if err != nil {
			s.Problems = append(s.Problems, fmt.Sprintf("it is not known which nodes and Pods are well: %v", err))
			return
		}
	}
	s.Problems = append(s.Problems, staleNodes(s.Nodes, leases.Items, now)...)
	if text := evictions(pods.Items, now); text != "" {
		s.Problems = append(s.Problems, text)
	}
}

// staleNodes describes the nodes that are called ready and have not renewed their Leases.
func staleNodes(nodes []nodeStatus, leases []coordinationv1.Lease, now time.Time) (out []string) {
	ready := map[string]bool{}
	for _, n := range nodes {
		ready[n.Name] = n.Ready
	}
	for i := range leases {
		if renewed := leases[i].Spec.RenewTime; ready[leases[i].Name] && renewed != nil && now.Sub(renewed.Time) > staleLease {
			out = append(out, fmt.Sprintf("node %s is called ready, but has not renewed its Lease for %s: its agent and the controllers have stopped, or its clock is wrong",
				leases[i].Name, answer.Ago(now, renewed.Time)))
		}
	}
	return out
}

// evictions describes the Pods that were evicted lately; it returns nothing if there are none.
func evictions(failed []corev1.Pod, now time.Time) string {
	count := 0
	var last *corev1.Pod
	var at time.Time
	for i := range failed {
		p := &failed[i]
		ended := endOf(p)
		if p.Status.Reason != "Evicted" || now.Sub(ended) > evictionsOf {
			continue
		}
		if count++; last == nil || ended.After(at) {
			last, at = p, ended
		}
	}
	switch count {
	case 0:
		return ""
	case 1:
		return fmt.Sprintf("Pod %s/%s was evicted from node %s %s ago: %s", last.Namespace, last.Name, last.Spec.NodeName,
			answer.Ago(now, at), answer.Sentence(last.Status.Message))
	}
	return fmt.Sprintf("%d Pods were evicted in the last hour; the last one, %s/%s from node %s, %s ago: %s", count, last.Namespace, last.Name,
		last.Spec.NodeName, answer.Ago(now, at), answer.Sentence(last.Status.Message))
}

// endOf returns when a Pod that has failed ended, as far as its status tells: when its last condition changed, or when it began.
func endOf(p *corev1.Pod) time.Time {
	at := p.CreationTimestamp.Time
	for i := range p.Status.Conditions {
		if t := p.Status.Conditions[i].LastTransitionTime.Time; t.After(at) {
			at = t
		}
	}
	return at
}
