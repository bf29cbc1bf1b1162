package crash

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
)

const collection = "/api/v1/namespaces/crash/configmaps"

// configMap has the fields of a ConfigMap that the tests use.
type configMap struct {
	APIVersion string            `json:"apiVersion,omitempty"`
	Kind       string            `json:"kind,omitempty"`
	Metadata   meta              `json:"metadata"`
	Data       map[string]string `json:"data,omitempty"`
}

type meta struct {
	Name            string            `json:"name,omitempty"`
	ResourceVersion string            `json:"resourceVersion,omitempty"`
	Labels          map[string]string `json:"labels,omitempty"`
}

// version is the state of an object: its value is zero if it does not exist.
type version struct {
	value    int
	revision int64
}

func (m *configMap) version() (version, error) {
	value, err := strconv.Atoi(m.Data["v"])
	if err != nil {
		return version{}, err
	}
	rev, err := strconv.ParseInt(m.Metadata.ResourceVersion, 10, 64)
	return version{value, rev}, err
}

// createNamespace creates the namespace of the tests.
func createNamespace(c *cluster) {
	c.Helper()
	body := []byte(`{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"crash"}}`)
	client := c.client()
	defer client.CloseIdleConnections()
	if _, err := c.send(client, http.MethodPost, "/api/v1/namespaces", body); err != nil {
		c.Fatal(err)
	}
}

// send sends a request and returns the body of the answer; a status code of 300 or more is an error.
func (c *cluster) send(client *http.Client, method, path string, body []byte) ([]byte, error) {
	code, text, err := c.exchange(client, method, path, body)
	if err == nil && code >= 300 {
		// A killed server sends no answer, so an error status is never caused by the kill.
		c.Errorf("%s %s: %d %.300s", method, path, code, text)
		err = fmt.Errorf("%d", code)
	}
	if err != nil {
		return nil, err
	}
	return text, nil
}

// exchange sends a request and reads the answer.
func (c *cluster) exchange(client *http.Client, method, path string, body []byte) (code int, text []byte, err error) {
	req, err := http.NewRequestWithContext(c.Context(), method, c.base+path, bytes.NewReader(body))
	if err != nil {
		return 0, nil, err
	}
	if len(body) > 0 {
		req.Header.Set("Content-Type", "application/json")
	}
	res, err := client.Do(req)
	if err != nil {
		return 0, nil, err
	}
	defer func() { _ = res.Body.Close() }()
	text, err = io.ReadAll(res.Body)
	return res.StatusCode, text, err
}

// apply makes one write and records what is known after it.
func (w *writer) apply(client *http.Client, name, verb string) error {
	o := w.objects[name]
	if o == nil {
		o = &object{}
		w.objects[name] = o
	}
	o.pending = verb
	o.unknown++
	method, path, next := http.MethodPut, collection+"/"+name, o.value+1
	switch verb {
	case "create":
		method, path = http.MethodPost, collection
	case "delete":
		method, next = http.MethodDelete, 0
	}
	var body []byte
	if next > 0 {
		var err error
		body, err = json.Marshal(configMap{
			APIVersion: "v1", Kind: "ConfigMap", Metadata: meta{Name: name, Labels: map[string]string{"crash": "yes"}},
			Data: map[string]string{"v": strconv.Itoa(next)},
		})
		if err != nil {
			return err
		}
	}
	text, err := w.send(client, method, path, body)
	if err != nil {
		return err
	}
	var is version
	if next > 0 {
		var m configMap
		if err := json.Unmarshal(text, &m); err != nil {
			return err
		}
		if is, err = m.version(); err != nil {
			return err
		}
		if is.value != next {
			w.Errorf("%s %s: the answer has version %d, not %d", verb, name, is.value, next)
		}
	}
	o.pending, o.value, o.revision = "", next, is.revision
	o.unknown--
	o.acks = append(o.acks, ack{next, is.revision})
	if verb == "create" {
		w.names = append(w.names, name)
	}
	return nil
}

// listing is the state of the cluster.
type listing struct {
	revision int64
	objects  map[string]version
}

func (c *cluster) list() *listing {
	c.Helper()
	client := c.client()
	defer client.CloseIdleConnections()
	text, err := c.send(client, http.MethodGet, collection+"?labelSelector=crash", nil)
	if err != nil {
		c.Fatal(err)
	}
	var l struct {
		Metadata meta        `json:"metadata"`
		Items    []configMap `json:"items"`
	}
	if err := json.Unmarshal(text, &l); err != nil {
		c.Fatal(err)
	}
	out := &listing{objects: map[string]version{}}
	if out.revision, err = strconv.ParseInt(l.Metadata.ResourceVersion, 10, 64); err != nil {
		c.Fatal(err)
	}
	for _, it := range l.Items {
		if out.objects[it.Metadata.Name], err = it.version(); err != nil {
			c.Fatalf("%s: %v", it.Metadata.Name, err)
		}
	}
	return out
}
