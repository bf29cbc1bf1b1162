package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"

	"k8s.io/client-go/rest"

	"proa.dev/test/upstream"
)

const definitionsPath = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"

type object = map[string]any

// adminClient sends requests as the administrator.
type adminClient struct {
	client *http.Client
	host   string
}

func newDoor(s *upstream.System) (*adminClient, error) {
	config, err := s.Config()
	if err != nil {
		return nil, err
	}
	client, err := rest.HTTPClientFor(config)
	return &adminClient{client, config.Host}, err
}

func (d *adminClient) post(ctx context.Context, path string, body any) error {
	_, err := d.send(ctx, http.MethodPost, path, body, "")
	return err
}

// send sends an object and returns the answer; one that is no success is an error.
func (d *adminClient) send(ctx context.Context, method, path string, body any, accept string) ([]byte, error) {
	var text io.Reader
	if body != nil {
		data, err := json.Marshal(body)
		if err != nil {
			return nil, err
		}
		text = bytes.NewReader(data)
	}
	req, err := http.NewRequestWithContext(ctx, method, d.host+path, text)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	if accept != "" {
		req.Header.Set("Accept", accept)
	}
	resp, err := d.client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode >= http.StatusMultipleChoices {
		err = fmt.Errorf("status %d: %s", resp.StatusCode, answer[:min(len(answer), 300)])
	}
	return answer, err
}

// group is that of a definition.
func (f settings) group(n int) string { return fmt.Sprintf("g%02d.bench.example.com", n%f.groups) }

// name is that of a definition.
func (f settings) name(n int) string { return fmt.Sprintf("things%04d.%s", n, f.group(n)) }

// path is where the objects of a definition are.
func (f settings) path(n int) string {
	return fmt.Sprintf("/apis/%s/v1/namespaces/bench/things%04d", f.group(n), n)
}

// definition is one with two versions of eleven fields, ten of them with descriptions, and two rules.
func (f settings) definition(n int) object {
	fields := object{"count": object{"type": "integer"}}
	for i := range 10 {
		fields[fmt.Sprint("field", i)] = object{"type": "string", "maxLength": 64, "description": fmt.Sprintf("field%d is one of the fields of this object, and says what is wanted of it.", i)}
	}
	var rules []object
	for i := range 2 {
		rules = append(rules, object{"rule": fmt.Sprintf("self.field%d.startsWith('value') && self.count >= %d", i, i),
			"message": "field and count must fit"})
	}
	version := func(name string, stored bool) object {
		spec := object{"type": "object", "required": []string{"count"}, "properties": fields, "x-kubernetes-validations": rules}
		return object{"name": name, "served": true, "storage": stored,
			"schema": object{"openAPIV3Schema": object{"type": "object", "properties": object{"spec": spec}}}}
	}
	return object{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": object{"name": f.name(n)},
		"spec": object{
			"group": f.group(n), "scope": "Namespaced",
			"names":    object{"plural": fmt.Sprintf("things%04d", n), "kind": fmt.Sprintf("Thing%04d", n)},
			"versions": []object{version("v1", true), version("v1beta1", false)},
		},
	}
}

// object is one of a definition.
func (f settings) object(n int, name string) object {
	spec := object{"count": 100}
	for i := range 10 {
		spec[fmt.Sprint("field", i)] = "value"
	}
	return object{"apiVersion": f.group(n) + "/v1", "kind": fmt.Sprintf("Thing%04d", n), "metadata": object{"name": name}, "spec": spec}
}

// anonymous returns the anonymous memory of processes: what they have allocated, without the pages of files.
func anonymous(pids []int) (sum int64, err error) {
	for _, pid := range pids {
		data, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
		if err != nil {
			return 0, fmt.Errorf("read memory: %w", err)
		}
		for line := range strings.Lines(string(data)) {
			if amount, found := strings.CutPrefix(line, "Anonymous:"); found {
				n, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(amount), " kB"), 10, 64)
				if err != nil {
					return 0, fmt.Errorf("read memory: %w", err)
				}
				sum += n << 10
			}
		}
	}
	return sum, nil
}

// processorTime returns the processor time of processes, in user and system mode. The kernel counts in hundredths of a
// second.
func processorTime(pids []int) (sum time.Duration, err error) {
	for _, pid := range pids {
		data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			return 0, fmt.Errorf("read processor time: %w", err)
		}
		_, numbers, _ := strings.Cut(string(data), ") ") // the command, in parentheses, may hold spaces
		fields := strings.Fields(numbers)
		if len(fields) < 13 {
			return 0, fmt.Errorf("read processor time of %d: unexpected format", pid)
		}
		for _, field := range fields[11:13] {
			n, err := strconv.ParseInt(field, 10, 64)
			if err != nil {
				return 0, fmt.Errorf("read processor time: %w", err)
			}
			sum += time.Duration(n) * 10 * time.Millisecond
		}
	}
	return sum, nil
}
