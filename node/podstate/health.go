package podstate

// Health is the result of the probes of one run of a container.
type Health struct {
	Started bool // its startup probe, if any, has succeeded
	Ready   bool
	// Failed is set when a startup or liveness probe has failed, so that the container must be stopped.
	Failed *ProbeFailure
}

// ProbeFailure is the failure of a startup or liveness probe.
type ProbeFailure struct {
	Probe   string // "liveness" or "startup"
	Message string
	Grace   *int64 // the grace period of the probe, nil for that of the Pod
}
