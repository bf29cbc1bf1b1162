// Package nodestatus keeps the cluster's picture of this node: it registers the Node object, says in its status what the machine
// has and how it is, renews its Lease, and keeps the certificates with which the node speaks and is spoken to.
//
// What the status says is worked out by a pure function from Facts; everything else here gathers facts or writes.
package nodestatus

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/netip"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"proa.dev/client"
	"proa.dev/kinds/gr"
	"proa.dev/kinds/kind"
	"proa.dev/node/clock"
)

// The rhythm of a node.
const (
	// lookEvery is how often a node that is well looks at itself.
	lookEvery = 10 * time.Second
	// reportEvery is how often it writes its status when nothing has changed.
	reportEvery = 5 * time.Minute
	// The first looks of a node that is not ready follow each other quickly.
	firstLook, lastLook = 100 * time.Millisecond, 5 * time.Second
	// patience is how long an agent that finds its Node in the cluster waits for the runtime before it says that the runtime is
	// away: containers go on while agents restart.
	patience = 5 * time.Second
)

// Config is what somebody has decided about a node.
type Config struct {
	Name string
	// Hostname is what the node is called in its label and addresses; empty for Name.
	Hostname string
	// Addresses are the node's own, at most one of each family; none to find one, and another when the machine has lost it.
	Addresses []netip.Addr
	// Find finds an address where none is said; nil for the one by which the machine reaches others.
	Find       func() (netip.Addr, error)
	Labels     map[string]string
	Taints     []corev1.Taint
	ProviderID string
	// Cloud says that the controllers of a cloud describe the node: it waits for them with a taint, and what they say of its
	// addresses stays.
	Cloud bool
	// MaxPods is 110 if it is 0; PodsPerCore may make it less.
	MaxPods, PodsPerCore int
	// MaxImages is how many images the status lists: 50 if it is 0, all if it is negative.
	MaxImages int
	// Port is where the agent serves.
	Port int32
	// Version is that of the agent, such as v1.37.1.
	Version string
	// Data is the folder on whose filesystem Pods write.
	Data string
	// SystemReserved and KubeReserved are kept from Pods.
	SystemReserved, KubeReserved corev1.ResourceList
	// Features are the names of the features that the node declares, sorted; nil for Usual.
	Features []string
}

// Usual are the features that this agent has and that Pods may need: a scheduler asks for them.
func Usual() []string {
	return []string{"ExtendWebSocketsToKubelet", "InPlacePodVerticalScalingInitContainers", "RestartAllContainersOnContainerExits"}
}

// Parts are the parts of the agent whose state shows in the status. All but Runtime may be left out.
type Parts struct {
	Runtime Runtime
	// Evicting is what hard eviction thresholds keep from Pods, of a capacity.
	Evicting func(capacity corev1.ResourceList) corev1.ResourceList
	// Pressed tells whether a pressure condition is true.
	Pressed func(corev1.NodeConditionType) bool
	// Volumes are those in use; known is false until it is certain.
	Volumes func() (inUse []corev1.UniqueVolumeName, known bool)
	// Moved is called when the node has other addresses than before.
	Moved func()
	// Reported is called with the volumes that the stored status has, which is when they may be mounted.
	Reported func([]corev1.UniqueVolumeName)
	Devices  func() Devices
	// Checks are asked whether the parts of the agent still work.
	Checks []Check
	// ShuttingDown is an error while the machine goes down.
	ShuttingDown func() error
	// Events records Events about the Node; it may be nil.
	Events EventRecorder
}

// Devices are the extended resources of plugins.
type Devices struct {
	Capacity, Allocatable corev1.ResourceList
	// Removed are the resources whose plugin is gone.
	Removed []corev1.ResourceName
	// Reset says that nothing is known about what plugins had before: what the Node has of theirs is not there until they
	// register again.
	Reset bool
}

// Check is a part that may stop working.
type Check struct {
	Name string
	Fn   func() error
}

// EventRecorder records Events about the Node.
type EventRecorder interface {
	Event(about kind.Object, eventType, reason, format string, args ...any)
}

// Node keeps one Node.
type Node struct {
	Config
	Parts
	cluster client.Client
	host    *Host
	log     *slog.Logger
	poke    chan struct{}
	agent   string // see agentID
	renewed bool   // this agent has renewed the Lease; only heartbeat knows it

	mu    sync.Mutex // guards what follows
	uid   types.UID
	shown *corev1.Node // the Node as it was last seen or written
	// network is why Pods could not have one at the last look.
	network error

	// The rest belongs to Run alone.
	began, asked, reported time.Time // begin of Run, last answer of the runtime, last report
	delay                  time.Duration
	last                   answer
	at                     netip.Addr // the address that was found
	rebooted, cordoned     bool
	refused                string // what was told last about addresses that the server refuses
	// adopted says that the Node was there before, and that its status was not written yet.
	adopted bool
}

// New makes the keeper of a node. The client speaks as the node.
func New(c client.Client, config Config, parts Parts, log *slog.Logger) (*Node, error) {
	if config.Name == "" || parts.Runtime == nil {
		return nil, errors.New("a node needs a name and a runtime")
	}
	if len(config.Addresses) > 2 || len(config.Addresses) == 2 && config.Addresses[0].Is4() == config.Addresses[1].Is4() {
		return nil, fmt.Errorf("the node has the addresses %v: give one, or one of IPv4 and one of IPv6", config.Addresses)
	}
	if config.Hostname == "" {
		config.Hostname = config.Name
	}
	if config.Features == nil {
		config.Features = Usual()
	}
	host := &Host{}
	return &Node{
		Config: config, Parts: parts, cluster: c, host: host, log: log, poke: make(chan struct{}, 1), agent: agentID(host.Machine(), config.Data),
	}, nil
}

// Poke makes the node look at itself now, because something has changed.
func (n *Node) Poke() {
	select {
	case n.poke <- struct{}{}:
	default:
	}
}

// Current is the Node as the cluster has it, or nil before it is registered. It is shared and read-only.
func (n *Node) Current() *corev1.Node {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.shown
}

func (n *Node) show(o *corev1.Node) {
	n.mu.Lock()
	moved := n.shown == nil || !slices.Equal(n.shown.Status.Addresses, o.Status.Addresses)
	n.uid, n.shown = o.UID, o
	n.mu.Unlock()
	if moved && n.Moved != nil {
		n.Moved()
	}
	if n.Reported != nil {
		n.Reported(o.Status.VolumesInUse)
	}
}

// Run registers the node and keeps its status and its Lease until ctx ends, or until another agent has taken the node over, which is an
// error.
func (n *Node) Run(ctx context.Context) error {
	n.began = time.Now()
	if err := n.register(ctx); err != nil {
		return err
	}
	view, err := n.open(ctx)
	if err != nil {
		return err
	}
	n.tell(corev1.EventTypeNormal, "Starting", "Starting kubelet.")
	var wg sync.WaitGroup
	defer wg.Wait()
	outside := ctx
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	wg.Go(func() {
		if err := n.heartbeat(ctx); err != nil {
			stop(err)
		}
	})
	wg.Go(func() {
		for e := range view.Events(ctx) {
			if o, ok := e.Object.(*corev1.Node); ok && !e.Deleted {
				n.show(o)
				n.Poke() // somebody may have changed what is the node's to say
			}
		}
	})
	n.look(ctx)
	if outside.Err() == nil {
		return context.Cause(ctx)
	}
	return nil
}

// open opens the view of the node's own Node; a server that is away comes back.
func (n *Node) open(ctx context.Context) (client.View, error) {
	for wait := firstLook; ; wait = min(2*wait, 7*time.Second) {
		view, err := n.cluster.Part(ctx, gr.Nodes, client.Scope{Name: n.Name})
		if err == nil {
			return view, nil
		}
		n.log.Error("the Node cannot be watched", "node", n.Name, "err", err)
		if !clock.Sleep(ctx, wait) {
			return nil, ctx.Err()
		}
	}
}

// look looks at the node again and again, soon while it is not ready.
func (n *Node) look(ctx context.Context) {
	again := firstLook
	for ctx.Err() == nil {
		ready, err := n.sync(ctx)
		if err != nil && ctx.Err() == nil {
			n.log.Error("the status of the Node cannot be written", "node", n.Name, "err", err)
		}
		wait := lookEvery
		if !ready || err != nil {
			wait, again = again, min(again*3/2, lastLook)
		} else {
			again = firstLook
		}
		t := time.NewTimer(wait)
		select {
		case <-ctx.Done():
		case <-n.poke:
		case <-t.C:
		}
		t.Stop()
	}
}

// sync writes the status if it has changed, or if it was not written for long.
func (n *Node) sync(ctx context.Context) (ready bool, err error) {
	facts := n.gather(ctx)
	have := n.Current()
	n.schedulable(have)
	for range 5 {
		now := time.Now()
		next := have.DeepCopy()
		news := describe(next, &n.Config, facts, now)
		ready = isReady(next)
		if n.asked.IsZero() && isReady(have) && now.Sub(n.began) < patience {
			return false, nil
		}
		changed := differs(&have.Status, &next.Status)
		if !changed && now.Sub(n.reported) < reportEvery+n.delay {
			n.show(have)
			n.tellRefused(facts)
			return ready, nil
		}
		o, err := n.cluster.Update(ctx, gr.Nodes, next, "status")
		if facts.drop(next, err) {
			continue
		}
		if apierrors.IsConflict(err) {
			if have, err = n.get(ctx); err == nil {
				continue
			}
		}
		if err != nil {
			return ready, err
		}
		n.wrote(o, news, changed, now)
		n.tellRefused(facts)
		return ready, nil
	}
	return ready, errors.New("others write the Node all the time")
}

// wrote notes that the status is stored, and tells people what is new in it.
func (n *Node) wrote(o kind.Object, news []note, changed bool, now time.Time) {
	// Nodes that were made together do not report together.
	n.delay = 0
	if changed || n.reported.IsZero() {
		n.delay = time.Duration((rand.Float64() - 0.5) * float64(reportEvery)) //nolint:gosec // it spreads work and hides nothing
	}
	n.reported, n.adopted = now, false
	if stored, ok := o.(*corev1.Node); ok {
		n.show(stored)
	}
	for _, x := range news {
		if x.reason == "Rebooted" {
			if n.rebooted {
				continue
			}
			n.rebooted = true
		}
		n.tell(x.kind, x.reason, x.text)
	}
}

// schedulable tells when somebody lets Pods come to the node, or no longer.
func (n *Node) schedulable(o *corev1.Node) {
	if o.Spec.Unschedulable == n.cordoned {
		return
	}
	n.cordoned = o.Spec.Unschedulable
	event := "NodeSchedulable"
	if n.cordoned {
		event = "NodeNotSchedulable"
	}
	n.tell(corev1.EventTypeNormal, event, fmt.Sprintf("Node %s status is now: %s", n.Name, event))
}

func (n *Node) get(ctx context.Context) (*corev1.Node, error) {
	o, err := n.cluster.Get(ctx, gr.Nodes, "", n.Name, "")
	if err != nil {
		return nil, err
	}
	have, ok := o.(*corev1.Node)
	if !ok {
		return nil, fmt.Errorf("the cluster has a %T as Node", o)
	}
	return have, nil
}

func (n *Node) tell(kind, reason, text string) {
	if n.Events != nil {
		if o := n.Current(); o != nil {
			n.Events.Event(o, kind, reason, "%s", text)
		}
	}
}
