package lookup

import (
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"proa.dev/why/messages"
)

// cacheReader is a Cluster that can read what the server has in its cache, without asking its store, from now on.
type cacheReader interface{ ReadCached() }

// read reads something. If the store of the cluster does not answer, it and everything after it is read from the cache of the server, and
// that is noted: each attempt to read what is stored would take seconds.
func (r *Reader) read(what func() error) error {
	err := what()
	if !apierrors.IsServiceUnavailable(err) || r.outage != nil || !messages.IsOutage(err.Error()) { // other errors may quote names
		return err
	}
	cached, ok := r.cluster.(cacheReader)
	if !ok {
		return err
	}
	cached.ReadCached()
	r.outage = err
	r.CannotSee("what is stored now, this is what the server remembers", err)
	return what()
}

// Outage returns the error with which the store of the cluster did not answer; nil if it did. What was read after that may be old.
func (r *Reader) Outage() error { return r.outage }
