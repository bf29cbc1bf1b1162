package deadline

import (
	"net/http"
	"time"
)

// LimitBody sets until when the rest of the body of a request may arrive, and reports whether that was possible. Whoever reads the body
// calls finish with the error of the last read, before the answer begins.
//
// A deadline that passes while net/http reads from an HTTP/1.1 connection cancels the context of that connection for good, so that later
// requests on it would begin with a cancelled context. Such a connection is closed after the answer.
func LimitBody(w http.ResponseWriter, req *http.Request, at time.Time) (finish func(error), isLimited bool) {
	c := http.NewResponseController(w)
	isLimited = c.SetReadDeadline(at) == nil
	return func(err error) {
		if isLimited {
			_ = c.SetReadDeadline(time.Time{})
		}
		// After the last byte net/http goes on reading in the background, so that the deadline may pass without an error here.
		if passed := isLimited && !time.Now().Before(at); req.ProtoMajor == 1 && (err != nil || passed) {
			w.Header().Set("Connection", "close")
		}
	}, isLimited
}
