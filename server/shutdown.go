package server

// EndWatches ends all watches of HTTP clients, and those that begin later, as a server does that stops: the stream ends without an error event,
// so that clients go on after the last event that they got. It returns at once; OpenWatches says how many there still are.
func (s *Server) EndWatches() { s.endWatches() }

// OpenWatches is how many watches of HTTP clients are open.
func (s *Server) OpenWatches() int64 { return s.watches.Load() }
