// Package fact holds what is true of a Pod on this node, as the runtime and the parts of the agent tell it. Plans and
// statuses are worked out from facts and from nothing else, so an agent that was killed knows after one look what it knew
// before.
package fact

import (
	"net/netip"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Pod is what the runtime has of a Pod. Sandboxes and containers are newest first.
type Pod struct {
	UID             types.UID
	Namespace, Name string
	Sandboxes       []Sandbox
	Containers      []Container
}

// Sandbox is the room in which the containers of a Pod run.
type Sandbox struct {
	ID      string
	Ready   bool
	Attempt uint32
	Created time.Time
	// IPs are the addresses of the Pod, none for one that uses the node's network.
	IPs []netip.Addr
	// Network says that the sandbox has its own network.
	Network bool
	Handler string
}

// State is what a container does.
type State int

// The states of a container.
const (
	Unknown State = iota
	Created
	Running
	Exited
)

// Container is one run of a container of a Pod.
type Container struct {
	ID, Name  string
	SandboxID string
	State     State
	// Attempt is the number of runs before this one.
	Attempt                    uint32
	Created, Started, Finished time.Time
	ExitCode                   int32
	// Reason and Message are what the runtime says about the end, and, for the message, what the container says itself.
	Reason, Message string
	// Interrupted says that the node stopped the container because the node itself stops, or that the machine went down before
	// anybody saw the end: the exit code says nothing about the container's work then.
	Interrupted bool
	// Image is as the Pod names it, ImageID what it stands for.
	Image, ImageID string
	// Hash is that of the part of the spec that makes a restart necessary when it changes.
	Hash    string
	LogPath string
	// StopSignal is the signal that ends it, such as SIGTERM.
	StopSignal string
	Resources  *corev1.ResourceRequirements
	User       *corev1.ContainerUser
	Mounts     []Mount
}

// Mount is a mount of a container as the runtime has it.
type Mount struct {
	Host, Container string
	ReadOnly        bool
	Recursive       bool // read-only all the way down
	ImageRef        string
}

// Waiting is why a container does not run yet. As an error it says how the container's status shows it.
type Waiting struct {
	Reason, Message string
	// After is when another try makes sense; 0 leaves that to whoever tries.
	After time.Duration
}

func (w *Waiting) Error() string {
	if w.Message == "" {
		return w.Reason
	}
	return w.Reason + ": " + w.Message
}

// Succeeded tells whether the run has ended, and done its work.
func (c *Container) Succeeded() bool { return c.State == Exited && c.ExitCode == 0 && !c.Interrupted }

// Of returns the newest run of a container.
func (p *Pod) Of(name string) (*Container, bool) {
	for i := range p.Containers {
		if p.Containers[i].Name == name {
			return &p.Containers[i], true
		}
	}
	return nil, false
}

// Before returns the run before the newest one.
func (p *Pod) Before(name string) (*Container, bool) {
	seen := false
	for i := range p.Containers {
		if p.Containers[i].Name != name {
			continue
		}
		if seen {
			return &p.Containers[i], true
		}
		seen = true
	}
	return nil, false
}

// IPs are the addresses of the newest sandbox that is ready.
func (p *Pod) IPs() []netip.Addr {
	if len(p.Sandboxes) > 0 && p.Sandboxes[0].Ready {
		return p.Sandboxes[0].IPs
	}
	return nil
}
