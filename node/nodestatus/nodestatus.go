// Package nodestatus maintains the Node object of this node: it registers it, reports capacity and conditions in its
// status, renews its Lease, and keeps the node's client and serving certificates valid.
//
// The status is computed by a pure function from Facts; everything else here gathers facts or writes.
package nodestatus

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"proa.dev/client"
	"proa.dev/internal/wait"
	"proa.dev/kinds/kind"
	"proa.dev/kinds/lib/gr"
)

// The intervals of a node.
const (
	// checkEvery is how often a ready node checks its status.
	checkEvery = 10 * time.Second
	// reportEvery is how often it writes its status when nothing has changed.
	reportEvery = 5 * time.Minute
	// A node that is not ready checks its status more often, beginning with firstRetry.
	firstRetry, lastRetry = 100 * time.Millisecond, 5 * time.Second
	// runtimeGrace is how long an agent that finds its Node registered waits for the runtime before it reports that the
	// runtime is down: containers keep running while agents restart.
	runtimeGrace = 5 * time.Second
)

// Config is the configuration of a node.
type Config struct {
	Name string
	// Hostname is the value of the node's hostname label and address; empty for Name.
	Hostname string
	// Addresses are the node's addresses, at most one of each family; if there are none, one is found, and another if
	// the machine loses it.
	Addresses []netip.Addr
	// FindAddress finds an address if none is configured; nil for the one by which the machine reaches others.
	FindAddress func() (netip.Addr, error)
	Labels      map[string]string
	Taints      []corev1.Taint
	ProviderID  string
	// Cloud says that a cloud controller manager initializes the node: the node waits for it with a taint, and keeps
	// the addresses that it sets.
	Cloud bool
	// MaxPods is 110 if it is 0; PodsPerCore may make it less.
	MaxPods, PodsPerCore int
	// MaxImages is how many images the status lists: 50 if it is 0, all if it is negative.
	MaxImages int
	// Port is the port of the kubelet API.
	Port int32
	// Version is the version of the agent, such as v1.37.1.
	Version string
	// Build names the build of the agent, which the version of the API does not tell; see BuildAnnotation.
	Build string
	// Data is the folder on whose file system Pods write.
	Data string
	// SystemReserved and KubeReserved are not available to Pods.
	SystemReserved, KubeReserved corev1.ResourceList
	// Features are the declared features of the node, sorted; nil for Usual.
	Features []string
}

// DefaultFeatures returns the features that this agent declares, so that the scheduler can place Pods that need them.
func DefaultFeatures() []string {
	return []string{"ExtendWebSocketsToKubelet", "InPlacePodVerticalScalingInitContainers", "RestartAllContainersOnContainerExits"}
}

// Parts are the parts of the agent whose state shows in the status. All but Runtime may be left out.
type Parts struct {
	Runtime Runtime
	// EvictionReserve returns what the hard eviction thresholds keep from Pods, of a capacity.
	EvictionReserve func(capacity corev1.ResourceList) corev1.ResourceList
	// Pressure reports whether a pressure condition is true, and what is short.
	Pressure func(corev1.NodeConditionType) (shortage string, is bool)
	// Volumes returns the attached volumes in use; known is false until the list is complete.
	Volumes func() (inUse []corev1.UniqueVolumeName, known bool)
	// AddressesChanged is called when the addresses of the node have changed.
	AddressesChanged func()
	// Reported is called with the volumes in use of the stored status; only these may be mounted.
	Reported func([]corev1.UniqueVolumeName)
	Devices  func() Devices
	// Checks are health checks of other parts of the agent.
	Checks []Check
	// ShuttingDown returns an error while the machine shuts down.
	ShuttingDown func() error
	// Events records Events about the Node; it may be nil.
	Events EventRecorder
}

// Devices are the extended resources of device plugins.
type Devices struct {
	Capacity, Allocatable corev1.ResourceList
	// Removed are the resources whose plugin has disappeared.
	Removed []corev1.ResourceName
	// Reset says that nothing is known about earlier plugins: the extended resources of the Node count as zero until
	// their plugins register again.
	Reset bool
}

// Check is a health check of a part of the agent.
type Check struct {
	Name string
	Run  func() error
}

// EventRecorder records Events about the Node.
type EventRecorder interface {
	Event(about kind.Object, eventType, reason, format string, args ...any)
}

// Node maintains one Node object.
type Node struct {
	Config
	Parts
	cluster client.Client
	host    *Host
	log     *slog.Logger
	wake    wait.Signal
	agent   string // see agentID
	renewed bool   // this agent has renewed the Lease; used by heartbeat only

	mu      sync.Mutex // guards what follows
	uid     types.UID
	current *corev1.Node // the Node as it was last read or written
	// network says why Pods could not get a network at the last check.
	network error

	// The rest is used by the goroutine of Run only.
	began, lastAnswer, reported time.Time // begin of Run, last answer of the runtime, last report
	delay                       time.Duration
	lastInfo                    runtimeInfo
	machine                     Machine    // as it was read last
	foundAddress                netip.Addr // the address that was found
	rebooted, cordoned          bool
	refused                     string // the refused addresses that were reported last
	// adopted says that the Node existed before, and that this agent has not written its status yet.
	adopted bool
}

// New makes the part that maintains a Node object. The client must act as the node.
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
		config.Features = DefaultFeatures()
	}
	host := &Host{}
	machine, err := host.Machine()
	if err != nil {
		return nil, err
	}
	return &Node{
		Config: config, Parts: parts, cluster: c, host: host, machine: machine, log: log, wake: wait.NewSignal(),
		agent: agentID(machine, config.Data),
	}, nil
}

// Refresh makes the node check its status now, because something has changed.
func (n *Node) Refresh() { n.wake.Send() }

// Current returns the Node as the API last returned it, nil before it is registered. It is shared and must not be
// changed.
func (n *Node) Current() *corev1.Node {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.current
}

func (n *Node) setCurrent(o *corev1.Node) { n.replaceCurrent(nil, o) }

// replaceCurrent makes o the current Node, unless the watch has replaced seen in the meantime: o may be older than that, and what
// another writer has changed since would go unnoticed.
func (n *Node) replaceCurrent(seen, o *corev1.Node) {
	n.mu.Lock()
	if seen != nil && seen != n.current {
		n.mu.Unlock()
		return
	}
	moved := n.current == nil || !slices.Equal(n.current.Status.Addresses, o.Status.Addresses)
	n.uid, n.current = o.UID, o
	n.mu.Unlock()
	if moved && n.AddressesChanged != nil {
		n.AddressesChanged()
	}
	if n.Reported != nil {
		n.Reported(o.Status.VolumesInUse)
	}
}

// Run registers the node and maintains its status and Lease until ctx ends, or until another agent has taken over the
// node, which is an error.
func (n *Node) Run(ctx context.Context) error {
	n.began = time.Now()
	if err := n.register(ctx); err != nil {
		return err
	}
	view, err := n.open(ctx)
	if err != nil {
		return err
	}
	n.recordEvent(corev1.EventTypeNormal, "Starting", "Starting kubelet.")
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
				n.setCurrent(o)
				n.Refresh() // another writer may have changed the status
			}
		}
	})
	n.run(ctx)
	if outside.Err() == nil {
		return context.Cause(ctx)
	}
	return nil
}

// open opens the view of the node's own Node object, with retries while the server cannot be reached.
func (n *Node) open(ctx context.Context) (client.View, error) {
	retry := wait.Backoff{First: firstRetry, Max: 7 * time.Second}
	for {
		view, err := n.cluster.Part(ctx, gr.Nodes, client.Scope{Name: n.Name})
		if err == nil {
			return view, nil
		}
		n.log.Error("the Node cannot be watched", "node", n.Name, "err", err)
		if retry.Sleep(ctx) != nil {
			return nil, ctx.Err()
		}
	}
}

// run checks the status periodically, and more often while the node is not ready.
func (n *Node) run(ctx context.Context) {
	again := firstRetry
	for ctx.Err() == nil {
		ready, err := n.sync(ctx)
		if err != nil && ctx.Err() == nil {
			n.log.Error("the status of the Node cannot be written", "node", n.Name, "err", err)
		}
		pause := checkEvery
		if !ready || err != nil {
			pause, again = again, min(again*3/2, lastRetry)
		} else {
			again = firstRetry
		}
		t := time.NewTimer(pause)
		select {
		case <-ctx.Done():
		case <-n.wake:
		case <-t.C:
		}
		t.Stop()
	}
}

// sync writes the status if it has changed, or if it was not written for reportEvery.
func (n *Node) sync(ctx context.Context) (ready bool, err error) {
	facts := n.gatherFacts(ctx)
	seen := n.Current()
	have := seen
	n.recordCordon(have)
	for range 5 {
		now := time.Now()
		next := have.DeepCopy()
		events := describe(next, &n.Config, facts, now)
		ready = isReady(next)
		if n.lastAnswer.IsZero() && isReady(have) && now.Sub(n.began) < runtimeGrace {
			return false, nil
		}
		changed := statusDiffers(&have.Status, &next.Status)
		if !changed && now.Sub(n.reported) < reportEvery+n.delay {
			n.replaceCurrent(seen, have)
			n.reportRefused(facts)
			return ready, nil
		}
		o, err := n.cluster.Update(ctx, gr.Nodes, next, "status")
		if facts.dropRefused(next, err) {
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
		n.statusWritten(changed, now)
		if stored, ok := o.(*corev1.Node); ok {
			n.replaceCurrent(seen, stored)
		}
		n.recordEvents(events)
		n.reportRefused(facts)
		return ready, nil
	}
	return ready, errors.New("others write the Node all the time")
}

// statusWritten notes when the status was written, and when it must be written again.
func (n *Node) statusWritten(changed bool, now time.Time) {
	// The delay keeps nodes that were created together from reporting together.
	n.delay = 0
	if changed || n.reported.IsZero() {
		n.delay = wait.Jitter(reportEvery) - reportEvery/2
	}
	n.reported, n.adopted = now, false
}

// recordEvents records the Events about changes of the status.
func (n *Node) recordEvents(events []nodeEvent) {
	for _, x := range events {
		if x.reason == "Rebooted" {
			if n.rebooted {
				continue
			}
			n.rebooted = true
		}
		n.recordEvent(x.kind, x.reason, x.text)
	}
}

// recordCordon records an Event when the node was cordoned or uncordoned.
func (n *Node) recordCordon(o *corev1.Node) {
	if o.Spec.Unschedulable == n.cordoned {
		return
	}
	n.cordoned = o.Spec.Unschedulable
	event := "NodeSchedulable"
	if n.cordoned {
		event = "NodeNotSchedulable"
	}
	n.recordEvent(corev1.EventTypeNormal, event, fmt.Sprintf("Node %s status is now: %s", n.Name, event))
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

func (n *Node) recordEvent(eventType, reason, text string) {
	if n.Events != nil {
		if o := n.Current(); o != nil {
			n.Events.Event(o, eventType, reason, "%s", text)
		}
	}
}
