package apireader

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Event is an event of a watch.
type Event struct {
	// Type is ADDED, MODIFIED, DELETED or BOOKMARK.
	Type string
	// Object is the object in JSON.
	Object json.RawMessage
}

// Watch watches one object, and calls each with every event until that returns false, ctx ends or the server ends the watch. The present
// state of the object comes first. An error that the server sends is one that apierrors understands.
func (r *Reader) Watch(ctx context.Context, gr schema.GroupResource, namespace, name string, each func(Event) bool) error {
	path, err := r.path(ctx, gr, namespace)
	if err != nil {
		return err
	}
	path += "?watch=true&fieldSelector=" + url.QueryEscape("metadata.name="+name)
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, r.server+path, nil)
	if err != nil {
		return err
	}
	lasting := *r.http
	lasting.Timeout = 0 // a watch takes as long as it takes
	resp, err := r.send(&lasting, req, http.Header{"Accept": {"application/json"}})
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		_, err := r.readAnswer(resp, path)
		return err
	}
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(nil, maxAnswer)
	for lines.Scan() {
		var ev Event
		if err := json.Unmarshal(lines.Bytes(), &ev); err != nil {
			return fmt.Errorf("read an event of %s: %w", r.printed, err)
		}
		if ev.Type == "ERROR" {
			var status metav1.Status
			if err := json.Unmarshal(ev.Object, &status); err != nil {
				return fmt.Errorf("read an event of %s: %w", r.printed, err)
			}
			return &apierrors.StatusError{ErrStatus: status}
		}
		if !each(ev) {
			return nil
		}
	}
	return lines.Err()
}
