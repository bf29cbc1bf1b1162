package settings

import "time"

// LongRequestGrace is how long a stopping server waits, after all other requests have finished, for watches, followed
// logs and the like to end.
const LongRequestGrace = 2 * time.Second

// shutdownSettings returns the settings for stopping a server.
func shutdownSettings() []Setting {
	return []Setting{
		{Name: "shutdown-delay-duration", Help: "when the server is asked to stop, go on serving for `DURATION` while /readyz fails, so that load balancers notice (default 0s)",
			Set: setOne(func(c *Config, v string) (err error) { c.ShutdownDelay, err = parseDuration(v); return err })},
		{Name: "shutdown-timeout", Help: "after shutdown-delay-duration, let requests in flight finish for `DURATION` at most (default 1m, which is as long as a request may take)",
			Set: setOne(func(c *Config, v string) (err error) { c.ShutdownTimeout, err = parseDuration(v); return err })},
	}
}

// StopTime returns how long a server with this configuration may take to stop.
func (c *Config) StopTime() time.Duration {
	const rest = 20 * time.Second // to stop controllers, nodes and the store
	return c.ShutdownDelay + c.ShutdownTimeout + 2*LongRequestGrace + rest
}
