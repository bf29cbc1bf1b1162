package stream

// The words with which an agent opens a tunnel, by which a server that has no route to the node reaches it: a POST to TunnelPath
// that asks to turn the connection into TunnelProtocol. Then HTTP/2 runs the other way round: the server asks, the agent answers.
const (
	TunnelPath     = "/proa/tunnel"
	TunnelProtocol = "proa-tunnel/1"
	// TunnelFrom is the header that tells the processes of agents apart.
	TunnelFrom = "Proa-Tunnel-From"
	// TunnelAt is the header with the addresses that the node knows as its own, apart by commas.
	TunnelAt = "Proa-Tunnel-At"
	// TunnelStreams is how many connections lead through a tunnel at a time, and TunnelBuffer how many bytes of each wait at
	// either end for who reads slowly: that many do not hold up the others.
	TunnelStreams = 512
	TunnelBuffer  = 512 << 10
)
