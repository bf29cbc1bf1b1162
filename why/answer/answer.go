// Package answer has the answers to the question why an object is as it is, for those who make them and those who show them.
package answer

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"proa.dev/hop"
)

// State is how an object does.
type State string

// The states, from best to worst.
const (
	// Working says that the object is as its owner wants it.
	Working State = "Working"
	// Waiting says that something is under way or waits as it was told to; nobody has to do anything yet.
	Waiting State = "Waiting"
	// Unknown says that what was visible does not explain the state of the object.
	Unknown State = "Unknown"
	// Stuck says that nothing will happen, or only the same failure again, until somebody acts.
	Stuck State = "Stuck"
)

// Rank orders the states from best to worst.
func (s State) Rank() int { return slices.Index([]State{Working, Waiting, Unknown, Stuck}, s) }

// Ref names an object.
type Ref struct {
	Kind      string `json:"kind"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
}

// String returns the reference as people write it: kind/name, in lower case.
func (r Ref) String() string { return strings.ToLower(r.Kind) + "/" + r.Name }

// Evidence is one fact that the explanation rests on: a field of an object with its value.
type Evidence struct {
	Object Ref        `json:"object"`
	Field  string     `json:"field"`
	Value  string     `json:"value"`
	Time   *time.Time `json:"time,omitempty"`
}

// NodeReason is what the scheduler found about one node: why it was rejected, or its score.
type NodeReason struct {
	// Node is the name of the node; empty with Hidden, when the reader may not get nodes.
	Node   string `json:"node"`
	Hidden bool   `json:"hidden,omitempty"`
	Chosen bool   `json:"chosen,omitempty"`
	Reason string `json:"reason"`           // why the node was rejected; empty when the Pod fits
	Plugin string `json:"plugin,omitempty"` // the plugin of the scheduler that has rejected the node
	// Score is the weighted sum of the scores, and Scores what each plugin adds to it. A node that is the only one gets no score.
	Score  *int64        `json:"score,omitempty"`
	Scores []PluginScore `json:"scores,omitempty"`
}

// PluginScore is what one plugin of the scheduler adds to the score of a node.
type PluginScore struct {
	Plugin string `json:"plugin"`
	Score  int64  `json:"score"`
}

// Attempt is what the scheduler found when it last tried to place a Pod.
type Attempt struct {
	Time    time.Time `json:"time"`
	Number  int       `json:"attempt"`
	Profile string    `json:"scheduler"`
	// ChosenNode is the node that was chosen, and Message says why the attempt has failed; one of them is empty.
	ChosenNode string `json:"chosenNode,omitempty"`
	Message    string `json:"message,omitempty"`
	// Total is the number of nodes of the cluster, Examined how many of them were looked at, Feasible how many of these were suitable.
	Total    int `json:"total"`
	Examined int `json:"examined"`
	Feasible int `json:"feasible"`
	// Nodes are the nodes that were looked at: the suitable ones from the best to the worst, then the others. LeftOut is how many more
	// of them there were.
	Nodes   []NodeReason `json:"nodes,omitempty"`
	LeftOut int          `json:"leftOut,omitempty"`
	// Rest says why the nodes that were not looked at are not suitable; empty when the search has ended because enough were found.
	Rest string `json:"rest,omitempty"`
}

// Step is one link of a chain that must hold from one end to the other, as from a Service to its Pods.
type Step struct {
	Name string `json:"name"`
	OK   bool   `json:"ok"`
	Text string `json:"text"`
}

// Answer explains one object.
type Answer struct {
	Object Ref `json:"object"`
	// Resource is the resource of the object with its group, as in deployments.apps; empty when it is not known.
	Resource string `json:"resource,omitempty"`
	State    State  `json:"state"`
	// Hop is the number of the hop at which the object is stuck, HopName its name; zero when that is not known.
	Hop     int    `json:"hop,omitempty"`
	HopName string `json:"hopName,omitempty"`
	// Cause is one sentence.
	Cause    string     `json:"cause"`
	Evidence []Evidence `json:"evidence,omitempty"`
	Actions  []string   `json:"actions,omitempty"`
	// Nodes are what the scheduler found about each node when it last tried to place the Pod, and NodesLeftOut how many are not shown.
	Nodes        []NodeReason `json:"nodes,omitempty"`
	NodesLeftOut int          `json:"nodesLeftOut,omitempty"`
	Chain        []Step       `json:"chain,omitempty"`
	// Unseen lists what could not be read, and so is not part of the explanation.
	Unseen []string `json:"unseen,omitempty"`
	// Through is the answer about another object that is the real cause, such as the Pod behind a Deployment.
	Through *Answer `json:"through,omitempty"`
}

// At sets the hop of an answer.
func (a *Answer) At(h hop.Hop) *Answer {
	a.Hop, a.HopName = int(h), h.String()
	return a
}

// Because adds a piece of evidence.
func (a *Answer) Because(object Ref, field, value string, when time.Time) *Answer {
	e := Evidence{Object: object, Field: Shorten(field), Value: Shorten(value)}
	if !when.IsZero() {
		e.Time = &when
	}
	a.Evidence = append(a.Evidence, e)
	return a
}

// Do adds what the user can do.
func (a *Answer) Do(format string, args ...any) *Answer {
	a.Actions = append(a.Actions, OneLine(fmt.Sprintf(format, args...)))
	return a
}

// AddStep adds a link to the chain of an answer and returns whether it holds.
func (a *Answer) AddStep(name string, ok bool, format string, args ...any) bool {
	a.Chain = append(a.Chain, Step{Name: name, OK: ok, Text: OneLine(fmt.Sprintf(format, args...))})
	return ok
}
