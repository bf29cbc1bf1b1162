package streamoptions

// The protocol by which an agent opens a tunnel, through which a server that has no route to the node reaches it: a POST to TunnelPath
// that upgrades the connection to TunnelProtocol. HTTP/2 then runs in the other direction: the server is the client, the agent serves.
const (
	TunnelPath     = "/proa/tunnel"
	TunnelProtocol = "proa-tunnel/1"
	// TunnelFrom is the header that identifies the process of the agent.
	TunnelFrom = "Proa-Tunnel-From"
	// TunnelAt is the header with the addresses of the node, separated by commas.
	TunnelAt = "Proa-Tunnel-At"
	// TunnelStreams bounds the concurrent connections through a tunnel, and TunnelBuffer the bytes of each that are buffered at either
	// end: a slow reader does not block the other connections until its buffer is full.
	TunnelStreams = 512
	TunnelBuffer  = 512 << 10
)
