package framework

// Rejection is why a plugin rejects a node for a Pod, or the Pod for all nodes. It is shared and read-only.
type Rejection struct {
	// Reasons are counted over all nodes and shown to users.
	Reasons []string
	// Unresolvable says that evicting Pods from the node would not help.
	Unresolvable bool
	// Pending says that the Pod waits for something that is in progress; it is then retried without back-off.
	Pending bool
	// Err says that the plugin failed. The Pod is retried with back-off, independently of events.
	Err error
}

// Unschedulable returns a rejection that evicting Pods from the node may resolve.
func Unschedulable(reasons ...string) *Rejection { return &Rejection{Reasons: reasons} }

// Unresolvable returns a rejection that evicting Pods from the node cannot resolve.
func Unresolvable(reasons ...string) *Rejection {
	return &Rejection{Reasons: reasons, Unresolvable: true}
}

// Failed returns the rejection of a plugin that failed with err.
func Failed(err error) *Rejection { return &Rejection{Reasons: []string{err.Error()}, Err: err} }
