package settings

// The HTTP/2 servers that the setting http2 chooses from: the one of package h2, and the one of net/http.
const (
	ownHTTP2 = "own"
	StdHTTP2 = "std"
)

// httpSettings returns the settings of the HTTP server.
func httpSettings() []Setting {
	return []Setting{{Name: "http2", Help: "serve HTTP/2 by `WHICH` server: own, which needs less CPU, or std, that of Go's net/http (default own)",
		Set: setOne(func(c *Config, v string) error {
			c.HTTP2 = v
			return oneOf(v, ownHTTP2, StdHTTP2)
		})}}
}
