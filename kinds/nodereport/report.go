// Package nodereport is the kind NodeReport of the group trace.proa.dev: with it the agent of a node in another process hands
// its records of hops (package hop) to the server. A report is sent and never stored.
package nodereport

import (
	"context"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"proa.dev/hop"
	"proa.dev/kinds/kind"
)

// The group and version of the kind.
const (
	Group   = "trace.proa.dev"
	Version = "v1"
)

// The limits of a report. An agent keeps them, and the server refuses what exceeds them.
const (
	// MaxRecords is how many records a report has at most.
	MaxRecords = 200
	// MaxSteps is how many steps a record has at most.
	MaxSteps = 16
	// MaxText is how many bytes a text of a record has at most.
	MaxText = 256
)

// Resource returns the resource of node reports.
func Resource() schema.GroupResource {
	return schema.GroupResource{Group: Group, Resource: "nodereports"}
}

// NodeReport is what the agent of a node says about the time that its work has taken.
type NodeReport struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Node is the name of the node. It must be that of the user who sends the report.
	Node string `json:"node"`
	// Sent is the time on the agent's clock at which the report was sent. The server compares it with its own clock.
	Sent time.Time `json:"sent"`
	// AgentStarted is when the agent started, on its own clock. Work that an earlier agent of the node has left open is over.
	AgentStarted time.Time `json:"agentStarted,omitzero"`
	// Dropped is how many records the agent could not keep since its last report.
	Dropped int64    `json:"dropped,omitempty"`
	Records []Record `json:"records"`
}

// Record is one piece of work of the agent about one object. Times are in nanoseconds.
type Record struct {
	// Verb is one of the verbs of package hop.
	Verb      string    `json:"verb"`
	Group     string    `json:"group,omitempty"`
	Resource  string    `json:"resource"`
	Namespace string    `json:"namespace,omitempty"`
	Name      string    `json:"name"`
	UID       types.UID `json:"uid"`
	// Revision is the resourceVersion of the object for which the work was done.
	Revision int64         `json:"revision"`
	Start    time.Time     `json:"start"`
	Took     time.Duration `json:"took"`
	// Wait is the part of Took that was spent waiting.
	Wait  time.Duration `json:"wait,omitempty"`
	Steps []Step        `json:"steps,omitempty"`
	// Open says that the work has not ended.
	Open  bool   `json:"open,omitempty"`
	Error string `json:"error,omitempty"`
}

// Step is a named part of a record.
type Step struct {
	Name   string        `json:"name"`
	Detail string        `json:"detail,omitempty"`
	After  time.Duration `json:"after,omitempty"`
	Took   time.Duration `json:"took,omitempty"`
	Wait   time.Duration `json:"wait,omitempty"`
	Failed bool          `json:"failed,omitempty"`
}

// HopOf returns the hop at which work with a verb of agents is done, 0 for other verbs.
func HopOf(verb string) hop.Hop {
	switch verb {
	case hop.Receive, hop.Volumes, hop.Sandbox, hop.PodNetwork, hop.Pull, hop.Container, hop.Probe, hop.Stop:
		return hop.Node
	case hop.Program, hop.Answer:
		return hop.Network
	}
	return 0
}

// OfHop returns a record as a report carries it. Texts that are too long and steps that are too many are cut off.
func OfHop(r *hop.Record) Record {
	h := HopOf(r.Verb)
	out := Record{
		Verb: r.Verb, Group: r.Group, Resource: r.Resource, Namespace: r.Namespace, Name: r.Name, UID: r.UID, Revision: r.Rev,
		Start: r.Start.Round(0), Took: r.Took[h], Wait: r.Wait[h], Open: r.Open, Error: Text(r.Error),
	}
	for _, s := range r.Steps[:min(len(r.Steps), MaxSteps)] {
		out.Steps = append(out.Steps, Step{Name: Text(s.Name), Detail: Text(s.Detail), After: s.After, Took: s.Took, Wait: s.Wait,
			Failed: s.Failed})
	}
	return out
}

// Kind returns the descriptor. receive handles a report; nil for clients, which only send them.
func Kind(receive func(ctx context.Context, d kind.Server, r *NodeReport) error) *kind.Def {
	return kind.Define(kind.Resource[NodeReport]{
		Traits: kind.Traits{
			GroupVersionKind: schema.GroupVersionKind{Group: Group, Version: Version, Kind: "NodeReport"},
			Plural:           "nodereports", Scope: kind.Cluster, Verbs: []string{"create"},
		},
		Act: func(ctx context.Context, d kind.Server, call *kind.Call) (kind.Object, error) {
			r, ok := call.Body.(*NodeReport)
			if !ok || receive == nil || call.DryRun {
				return nil, nil // a Status of success: there is nothing to do
			}
			return nil, receive(ctx, d, r)
		},
	})
}

// AddToScheme adds the kind to a scheme.
func AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(schema.GroupVersion{Group: Group, Version: Version}, &NodeReport{})
	return nil
}

// DeepCopyObject returns a copy of the report.
func (r *NodeReport) DeepCopyObject() runtime.Object {
	out := *r
	r.ObjectMeta.DeepCopyInto(&out.ObjectMeta)
	out.Records = make([]Record, len(r.Records))
	for i := range r.Records {
		out.Records[i] = r.Records[i]
		out.Records[i].Steps = append([]Step(nil), r.Records[i].Steps...)
	}
	return &out
}
