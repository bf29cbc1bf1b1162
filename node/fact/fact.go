// Package fact holds the facts about a Pod on this node, as the container runtime reports them. Plans and statuses are
// computed from facts and from nothing else, so an agent that was killed knows everything again after asking the
// runtime once.
package fact

import (
	"net/netip"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Pod holds what the runtime knows of a Pod. Sandboxes and containers are ordered newest first.
type Pod struct {
	UID             types.UID
	Namespace, Name string
	Sandboxes       []Sandbox
	Containers      []Container
}

// Sandbox is a Pod sandbox of the runtime.
type Sandbox struct {
	ID      string
	Ready   bool
	Attempt uint32
	Created time.Time
	// IPs are the addresses of the Pod; there are none if it uses the node's network.
	IPs []netip.Addr
	// Network reports whether the sandbox has a network namespace of its own.
	Network bool
	Handler string
}

// State is the state of a container in the runtime.
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
	// Attempt counts the runs before this one.
	Attempt                    uint32
	Created, Started, Finished time.Time
	ExitCode                   int32
	// Reason and Message say why the run ended, in the words of the runtime; if the container wrote a termination
	// message, Message is that.
	Reason, Message string
	// Interrupted reports that the container was stopped because the node was stopped, or that the machine went down
	// before the end was seen: the exit code then says nothing about the container's work.
	Interrupted bool
	// Image is the name that the Pod uses, ImageID what the runtime resolved it to.
	Image, ImageID string
	// Hash covers the fields of the container spec whose change requires a restart.
	Hash    string
	LogPath string
	// StopSignal is the signal that stops it, such as SIGTERM.
	StopSignal string
	Resources  *corev1.ResourceRequirements
	User       *corev1.ContainerUser
	Mounts     []Mount
}

// Mount is a mount of a container as the runtime reports it.
type Mount struct {
	Host, Container string
	ReadOnly        bool
	Recursive       bool // read-only all the way down
	ImageRef        string
}

// Waiting says why a container does not run yet. As an error, it carries the reason and message of the container's
// waiting state.
type Waiting struct {
	Reason, Message string
	// After is when a retry makes sense; 0 leaves that to the caller.
	After time.Duration
}

func (w *Waiting) Error() string {
	if w.Message == "" {
		return w.Reason
	}
	return w.Reason + ": " + w.Message
}

// CompleteEnd fills in what the runtime leaves out about the end of a container.
func (c *Container) CompleteEnd() {
	if c.Reason == "" {
		c.Reason = "Completed"
		if c.ExitCode != 0 {
			c.Reason = "Error"
		}
	}
	if c.Finished.IsZero() || c.Finished.Before(c.Created) {
		c.Finished = c.Created // it was created but not started
	}
}

// Succeeded reports whether the run has ended with exit code 0 and was not interrupted.
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

// IPs returns the addresses of the newest sandbox, if it is ready.
func (p *Pod) IPs() []netip.Addr {
	if len(p.Sandboxes) > 0 && p.Sandboxes[0].Ready {
		return p.Sandboxes[0].IPs
	}
	return nil
}
