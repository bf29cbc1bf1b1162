package openapi

import (
	"bytes"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// publishedDir returns the folder of the API description in upstream's source.
func publishedDir(t testing.TB) string {
	t.Helper()
	out, err := exec.Command("go", "env", "GOMODCACHE").Output()
	if err != nil {
		t.Skip("go env:", err)
	}
	dir := filepath.Join(strings.TrimSpace(string(out)), "k8s.io", "kubernetes@v1.37.1", "api")
	if _, err := os.Stat(dir); err != nil {
		t.Skip("the module k8s.io/kubernetes is not in the cache")
	}
	return dir
}

func readJSON(t testing.TB, path string, v any) {
	t.Helper()
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(raw, v); err != nil {
		t.Fatal(err)
	}
}

// stable lists the group versions that are served by default.
var stable = []string{
	"api/v1", "apis/admissionregistration.k8s.io/v1", "apis/apiextensions.k8s.io/v1", "apis/apiregistration.k8s.io/v1",
	"apis/apps/v1", "apis/authentication.k8s.io/v1", "apis/authorization.k8s.io/v1", "apis/autoscaling/v1",
	"apis/autoscaling/v2", "apis/batch/v1", "apis/certificates.k8s.io/v1", "apis/coordination.k8s.io/v1",
	"apis/discovery.k8s.io/v1", "apis/events.k8s.io/v1", "apis/flowcontrol.apiserver.k8s.io/v1", "apis/networking.k8s.io/v1",
	"apis/node.k8s.io/v1", "apis/policy/v1", "apis/rbac.authorization.k8s.io/v1", "apis/resource.k8s.io/v1",
	"apis/scheduling.k8s.io/v1", "apis/storage.k8s.io/v1", "apis/storagemigration.k8s.io/v1",
}

// deletesReturnObject lists the kinds for which a delete responds with the object.
var deletesReturnObject = []string{
	"PersistentVolumeClaim", "Pod", "PodTemplate", "ResourceQuota", "Service", "ServiceAccount", "PersistentVolume",
	"DeviceClass", "ResourceClaim", "ResourceClaimTemplate", "ResourceSlice",
	"CSIDriver", "CSINode", "StorageClass", "VolumeAttachment", "VolumeAttributesClass",
}

// publishedResources reads the table of resources from the published discovery documents.
func publishedResources(t testing.TB, dir string) []Resource {
	t.Helper()
	var all []Resource
	for _, gv := range stable {
		var list struct {
			Resources []struct {
				Name, SingularName, Kind, Group, Version string
				Namespaced                               bool
				Verbs                                    []string
			}
		}
		readJSON(t, filepath.Join(dir, "discovery", strings.ReplaceAll(gv, "/", "__")+".json"), &list)
		parts := strings.Split(gv, "/")
		group, version := "", parts[len(parts)-1]
		if len(parts) == 3 {
			group = parts[1]
		}
		for _, r := range list.Resources {
			plural, sub, isSub := strings.Cut(r.Name, "/")
			if !isSub {
				all = append(all, Resource{
					Group: group, Version: version, Kind: r.Kind, Plural: plural, Singular: r.SingularName,
					Namespaced: r.Namespaced, Verbs: r.Verbs, DeleteReturnsObject: slices.Contains(deletesReturnObject, r.Kind),
				})
				continue
			}
			i := slices.IndexFunc(all, func(x Resource) bool { return x.Group == group && x.Version == version && x.Plural == plural })
			all[i].Subresources = append(all[i].Subresources,
				Sub{Name: sub, Group: r.Group, Version: r.Version, Kind: r.Kind, Verbs: r.Verbs})
		}
	}
	return all
}

// withoutEnums removes the enum values, because the published files are made without them, while a server publishes them.
func withoutEnums(v any) any {
	switch v := v.(type) {
	case map[string]any:
		if _, ok := v["enum"].([]any); ok && v["type"] == "string" {
			delete(v, "enum")
		}
		if text, ok := v["description"].(string); ok {
			text, _, _ = strings.Cut(text, "Possible enum values:\n")
			if v["description"] = strings.TrimSpace(text); v["description"] == "" {
				delete(v, "description")
			}
		}
		for k, e := range v {
			v[k] = withoutEnums(e)
		}
	case []any:
		for i, e := range v {
			v[i] = withoutEnums(e)
		}
	}
	return v
}

// differences compares two objects entry by entry.
func differences(t *testing.T, what string, got, want map[string]any) (n int) {
	t.Helper()
	report := func(format string, args ...any) {
		if n++; n <= 5 {
			t.Errorf(what+": "+format, args...)
		}
	}
	for k, w := range want {
		g, ok := got[k]
		if !ok {
			report("%s is missing", k)
		} else if !reflect.DeepEqual(withoutEnums(g), withoutEnums(w)) {
			gj, _ := json.Marshal(g)
			wj, _ := json.Marshal(w)
			i := 0
			for i < len(gj) && i < len(wj) && gj[i] == wj[i] {
				i++
			}
			from := max(0, i-150)
			report("%s differs:\n got …%.400s\nwant …%.400s", k, gj[from:], wj[from:])
		}
	}
	for k := range got {
		if _, ok := want[k]; !ok {
			report("%s is not published", k)
		}
	}
	return n
}

// buildDocument builds a document in memory.
func buildDocument(build func(io.Writer) error) ([]byte, error) {
	var b bytes.Buffer
	err := build(&b)
	return b.Bytes(), err
}

func TestV3MatchesPublished(t *testing.T) {
	dir := publishedDir(t)
	s := New(Options{Resources: publishedResources(t, dir), Version: "unversioned", CBOR: true})
	for _, name := range append(slices.Clone(stable), "api", "apis", "apis/apps", "apis/rbac.authorization.k8s.io", "version",
		"openid/v1/jwks") {
		raw, err := buildDocument(func(w io.Writer) error { return s.writeV3(name, w, nil) })
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		var got, want map[string]any
		if err := json.Unmarshal(raw, &got); err != nil {
			t.Fatal(err)
		}
		readJSON(t, filepath.Join(dir, "openapi-spec", "v3", strings.ReplaceAll(name, "/", "__")+"_openapi.json"), &want)
		part := func(m map[string]any, keys ...string) map[string]any {
			for _, k := range keys {
				m, _ = m[k].(map[string]any)
			}
			return m
		}
		n := differences(t, name+" paths", part(got, "paths"), part(want, "paths"))
		n += differences(t, name+" schemas", part(got, "components", "schemas"), part(want, "components", "schemas"))
		if n > 0 {
			t.Errorf("%s: %d differences", name, n)
		}
		for _, k := range []string{"openapi", "info"} {
			if !reflect.DeepEqual(got[k], want[k]) {
				t.Errorf("%s: %s is %v, want %v", name, k, got[k], want[k])
			}
		}
	}
}

func TestV2MatchesPublished(t *testing.T) {
	dir := publishedDir(t)
	s := New(Options{Resources: publishedResources(t, dir), Version: "unversioned", CBOR: true})
	raw, err := buildDocument(func(w io.Writer) error { return s.writeV2(w, nil) })
	if err != nil {
		t.Fatal(err)
	}
	var got, want map[string]map[string]any
	decode := func(m map[string]any) map[string]map[string]any {
		out := map[string]map[string]any{}
		for k, v := range m {
			if o, ok := v.(map[string]any); ok {
				out[k] = o
			}
		}
		return out
	}
	var g, w map[string]any
	if err := json.Unmarshal(raw, &g); err != nil {
		t.Fatal(err)
	}
	readJSON(t, filepath.Join(dir, "openapi-spec", "swagger.json"), &w)
	got, want = decode(g), decode(w)
	for path := range want["paths"] {
		if strings.HasPrefix(path, "/logs") || unstablePath(path) {
			delete(want["paths"], path)
		}
	}
	for name := range want["definitions"] {
		if _, ok := got["definitions"][name]; !ok && (strings.Contains(name, "alpha") || strings.Contains(name, "beta")) {
			delete(want["definitions"], name)
		}
	}
	delete(want["parameters"], "logpath-Noq7euwC")
	for _, part := range []string{"paths", "definitions", "parameters", "securityDefinitions", "info"} {
		if n := differences(t, part, got[part], want[part]); n > 0 {
			t.Errorf("%s: %d differences", part, n)
		}
	}
	if !reflect.DeepEqual(g["security"], w["security"]) || g["swagger"] != w["swagger"] {
		t.Errorf("security %v, swagger %v", g["security"], g["swagger"])
	}
}

// unstablePath reports whether a path belongs to a group version that is not served by default.
func unstablePath(path string) bool {
	parts := strings.Split(strings.Trim(path, "/"), "/")
	if parts[0] != "apis" || len(parts) < 2 {
		return false
	}
	if len(parts) == 2 {
		return !slices.ContainsFunc(stable, func(gv string) bool { return strings.HasPrefix(gv, "apis/"+parts[1]+"/") })
	}
	return !slices.Contains(stable, strings.Join(parts[:3], "/"))
}
