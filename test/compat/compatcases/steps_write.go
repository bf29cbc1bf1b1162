package compatcases

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"proa.dev/test/compat/answerdiff"
)

// change adds a PUT of a kept object after a change to it.
func (k *kindCase) change(name, from, save string, q url.Values, f func(object, meta map[string]any)) {
	k.add(name, save, func(s *State) *Call {
		object := s.object(from)
		meta := object["metadata"].(map[string]any)
		target := answerdiff.Text(meta, "name")
		f(object, meta)
		return &Call{Method: http.MethodPut, path: k.path(target, ""), Query: q, Body: answerdiff.Encode(object)}
	})
}

// updateSteps replace objects, well and badly.
func (k *kindCase) updateSteps() {
	label := func(value string) func(o, m map[string]any) {
		return func(_, m map[string]any) { set(m, "labels", "changed", value) }
	}
	k.add("get before update", "first", func(*State) *Call { return &Call{Method: http.MethodGet, path: k.path(k.objectName(first), "")} })
	k.change("update labels, dry run", "first", "", dry(), label("dry"))
	k.change("update without change", "first", "first", nil, func(_, _ map[string]any) {})
	k.change("update labels", "first", "updated", nil, label("yes"))
	k.change("update with old resourceVersion", "first", "", nil, label("late"))
	k.change("update without resourceVersion", "updated", "updated", nil, func(_, m map[string]any) {
		delete(m, "resourceVersion")
		set(m, "annotations", "unconditional", "yes")
	})
	k.change("update with bad resourceVersion", "updated", "", dry(), func(_, m map[string]any) { m["resourceVersion"] = "abc" })
	k.change("update with other uid", "updated", "", dry(), func(_, m map[string]any) { m["uid"] = "11111111-1111-1111-1111-111111111111" })
	k.change("update with no uid", "updated", "", dry(), func(_, m map[string]any) { delete(m, "uid") })
	k.change("update with other creationTimestamp", "updated", "", dry(),
		func(_, m map[string]any) { m["creationTimestamp"] = "2001-01-01T00:00:00Z" })
	k.change("update with deletionTimestamp", "updated", "", dry(),
		func(_, m map[string]any) { m["deletionTimestamp"] = "2001-01-01T00:00:00Z" })
	k.change("update with generation", "updated", "", dry(), func(_, m map[string]any) { m["generation"] = 77 })
	k.change("update with other name", "updated", "", dry(), func(_, m map[string]any) { m["name"] = "other-name" })
	k.change("update with no name", "updated", "", dry(), func(_, m map[string]any) { delete(m, "name") })
	k.change("update with other namespace", "updated", "", dry(), func(_, m map[string]any) { m["namespace"] = "elsewhere" })
	k.change("update with other kind", "updated", "", dry(), func(o, _ map[string]any) { o["kind"] = "Other" })
	k.change("update with other apiVersion", "updated", "", dry(), func(o, _ map[string]any) { o["apiVersion"] = "other/v1" })
	k.change("update with no kind", "updated", "", dry(), func(o, _ map[string]any) { delete(o, "kind"); delete(o, "apiVersion") })
	k.change("update with bad label", "updated", "", dry(), label("not good!"))
	k.change("update with no managedFields", "updated", "", dry(), func(_, m map[string]any) { delete(m, "managedFields") })
	k.change("update with empty managedFields", "updated", "", dry(),
		func(_, m map[string]any) { m["managedFields"] = []any{map[string]any{}} })
	k.change("update with bad managedFields", "updated", "", dry(),
		func(_, m map[string]any) { m["managedFields"] = []any{map[string]any{"operation": "Bad"}} })
	k.change("update with long fieldManager", "updated", "", dry("fieldManager", strings.Repeat("m", 129)), label("x"))
	k.change("update with unprintable fieldManager", "updated", "", dry("fieldManager", "a\x07b"), label("x"))
	k.change("update as other manager", "updated", "", dry("fieldManager", "other"), label("other"))
	k.change("update with bad dryRun", "updated", "", query("dryRun", "Some"), label("x"))
	if k.full != nil {
		k.updateFieldSteps()
	}
	k.add("update missing", "", func(*State) *Call {
		return &Call{Method: http.MethodPut, path: k.path(k.objectName(updatedInto), ""), Query: dry(),
			Body: answerdiff.Encode(k.minimal(updatedInto))}
	})
	k.add("update missing with resourceVersion", "", func(*State) *Call {
		o := k.minimal(updatedInto)
		o["metadata"].(map[string]any)["resourceVersion"] = "1"
		return &Call{Method: http.MethodPut, path: k.path(k.objectName(updatedInto), ""), Query: dry(), Body: answerdiff.Encode(o)}
	})
}

// updateFieldSteps put one field after the other of the full example into the
// stored object: what may not change says so.
func (k *kindCase) updateFieldSteps() {
	for _, p := range answerdiff.Paths(k.full, 2) {
		if p[0] == "metadata" || p[0] == "kind" || p[0] == "apiVersion" || p[0] == "status" {
			continue
		}
		k.change("update field "+answerdiff.PathText(p), "updated", "", dry(),
			func(o, _ map[string]any) { answerdiff.Graft(o, k.full, p, nil) })
	}
	for key := range k.minimal(first) {
		if key != "metadata" && key != "kind" && key != "apiVersion" {
			k.change("update without "+key, "updated", "", dry(), func(o, _ map[string]any) { delete(o, key) })
		}
	}
}

// The patch media types.
const (
	jsonPatch  = "application/json-patch+json"
	mergePatch = "application/merge-patch+json"
	strategic  = "application/strategic-merge-patch+json"
	applyYAML  = "application/apply-patch+yaml"
	applyCBOR  = "application/apply-patch+cbor"
)

func (k *kindCase) patch(name, save, kind string, q url.Values, body string) {
	k.patchOf(name, patchTarget{save: save, object: k.objectName(first)}, kind, q, body)
}

// patchTarget is the object, or its subresource, that a patch changes. The answer is saved under a name, unless that is empty.
type patchTarget struct{ save, object, sub string }

// patchOf adds the step that patches an object with a body of some media type.
func (k *kindCase) patchOf(name string, to patchTarget, mediaType string, q url.Values, body string) {
	k.add(name, to.save, func(*State) *Call {
		return &Call{Method: http.MethodPatch, path: k.path(to.object, to.sub), contentType: mediaType, Query: q, Body: []byte(body)}
	})
}

func (k *kindCase) patchSteps() {
	k.patch("json patch", "patched", jsonPatch, nil, `[{"op":"add","path":"/metadata/labels/json","value":"yes"}]`)
	k.patch("json patch, dry run", "", jsonPatch, dry(), `[{"op":"remove","path":"/metadata/labels/json"}]`)
	k.patch("json patch of nothing", "", jsonPatch, nil, `[]`)
	for label, body := range map[string]string{
		"replace missing": `[{"op":"replace","path":"/metadata/labels/none","value":"x"}]`,
		"remove missing":  `[{"op":"remove","path":"/metadata/labels/none"}]`,
		"failing test":    `[{"op":"test","path":"/metadata/labels/json","value":"no"}]`, "bad operation": `[{"op":"jump","path":"/a"}]`,
		"not a list": `{"op":"add"}`,
		"bad JSON":   `[{`, "unknown field": `[{"op":"add","path":"/nonsense","value":"x"}]`,
		"name":       `[{"op":"replace","path":"/metadata/name","value":"other"}]`,
		"wrong type": `[{"op":"add","path":"/metadata/labels","value":"x"}]`,
		"bad label":  `[{"op":"add","path":"/metadata/labels/a~1b~1c","value":"x y"}]`,
		"copy":       `[{"op":"copy","from":"/metadata/name","path":"/metadata/labels/copied"}]`, "kind": `[{"op":"replace","path":"/kind","value":"Other"}]`,
	} {
		k.patch("json patch with "+label, "", jsonPatch, dry(), body)
	}
	k.patch("json patch, strict, unknown field", "", jsonPatch, dry("fieldValidation", "Strict"),
		`[{"op":"add","path":"/nonsense","value":"x"}]`)
	k.patch("merge patch", "patched", mergePatch, nil, `{"metadata":{"annotations":{"merge":"yes"}}}`)
	k.patch("merge patch without change", "", mergePatch, nil, `{"metadata":{"annotations":{"merge":"yes"}}}`)
	k.patch("strategic patch", "patched", strategic, nil, `{"metadata":{"labels":{"strategic":"yes","json":null}}}`)
	for _, kind := range []string{mergePatch, strategic} {
		short, _, _ := strings.Cut(strings.TrimPrefix(kind, "application/"), "-")
		for label, body := range map[string]string{
			"remove label": `{"metadata":{"labels":{"json":null}}}`, "bad JSON": `{`, "a list": `[]`,
			"unknown field": `{"nonsense":{"a":1}}`, "name": `{"metadata":{"name":"other"}}`,
			"wrong type": `{"metadata":{"labels":"x"}}`, "old resourceVersion": `{"metadata":{"resourceVersion":"1","labels":{"x":"y"}}}`,
			"uid":       `{"metadata":{"uid":"11111111-1111-1111-1111-111111111111"}}`,
			"bad label": `{"metadata":{"labels":{"a/b/c":"x y"}}}`, "namespace": `{"metadata":{"namespace":"elsewhere"}}`,
			"kind":       `{"kind":"Other"}`,
			"finalizers": `{"metadata":{"finalizers":["example.com/a"]}}`, "delete directive": `{"metadata":{"$patch":"delete"}}`,
			"empty":                  `{}`,
			"delete from finalizers": `{"metadata":{"$deleteFromPrimitiveList/finalizers":["example.com/a"]}}`,
		} {
			k.patch(short+" patch with "+label, "", kind, dry(), body)
		}
		k.patch(short+" patch, strict, unknown field", "", kind, dry("fieldValidation", "Strict"),
			`{"nonsense":1,"metadata":{"labels":{"a":"b"},"labels":{"a":"c"}}}`)
		k.patch(short+" patch, warn, unknown field", "", kind, dry("fieldValidation", "Warn"),
			`{"nonsense":1,"metadata":{"labels":{"a":"b"},"labels":{"a":"c"}}}`)
		k.patch(short+" patch with force", "", kind, dry("force", "true"), `{}`)
		k.patchOf(short+" patch missing", patchTarget{object: "no-such-object"}, kind, nil, `{}`)
	}
	k.patch("patch of unknown type", "", "application/x-patch", nil, `{}`)
	k.patch("patch as JSON", "", "application/json", nil, `{}`)
	k.patch("patch without type", "", " ", nil, `{}`)
	k.patch("patch with bad fieldValidation", "", mergePatch, dry("fieldValidation", "Maybe"), `{}`)
	k.patch("json patch too long", "", jsonPatch, dry(),
		"["+strings.TrimSuffix(strings.Repeat(`{"op":"add","path":"/metadata/labels/x","value":"y"},`, 10001), ",")+"]")
	k.specPatches()
}

// specPatches send each part of the minimal object's own content, so that list
// merging by key is exercised with real lists.
func (k *kindCase) specPatches() {
	for key, value := range k.minimal(first) {
		if key == "metadata" || key == "kind" || key == "apiVersion" {
			continue
		}
		body := string(answerdiff.Encode(map[string]any{key: value}))
		k.patch("strategic patch of own "+key, "", strategic, dry(), body)
		k.patch("merge patch of own "+key, "", mergePatch, dry(), body)
		k.patch("strategic patch deletes "+key, "", strategic, dry(), fmt.Sprintf(`{%q:null}`, key))
		if k.full != nil && k.full[key] != nil {
			k.patch("strategic patch of full "+key, "", strategic, dry(), string(answerdiff.Encode(map[string]any{key: k.full[key]})))
		}
	}
}

// applySteps exercise server-side apply and who owns which field.
func (k *kindCase) applySteps() {
	name := k.objectName(applied)
	object := k.minimal(applied)
	apply := func(label, save, manager string, q url.Values, change func(o, m map[string]any)) {
		o := answerdiff.Clone(object)
		if change != nil {
			change(o, o["metadata"].(map[string]any))
		}
		if q == nil {
			q = url.Values{}
		}
		if manager != "" {
			q.Set("fieldManager", manager)
		}
		k.patchOf("apply "+label, patchTarget{save: save, object: name}, applyYAML, q, string(answerdiff.Encode(o)))
	}
	value := func(v string) func(o, m map[string]any) {
		return func(_, m map[string]any) { set(m, "labels", "owned", v) }
	}
	apply("that creates, dry run", "", "one", dry(), value("a"))
	apply("that creates", "applied", "one", nil, value("a"))
	apply("the same again", "", "one", nil, value("a"))
	apply("by another, same value", "", "two", nil, value("a"))
	apply("by another, conflict", "", "three", nil, value("b"))
	apply("by another, forced", "applied", "three", query("force", "true"), value("b"))
	apply("that gives a field up", "applied", "three", nil, nil)
	apply("without manager", "", "", nil, value("c"))
	apply("with bad force", "", "one", query("force", "maybe"), value("c"))
	apply("with managedFields", "", "one", dry(), func(_, m map[string]any) { m["managedFields"] = []any{map[string]any{"manager": "x"}} })
	apply("with uid", "", "one", dry(), func(_, m map[string]any) { m["uid"] = "11111111-1111-1111-1111-111111111111" })
	apply("with resourceVersion", "", "one", dry("force", "true"), func(_, m map[string]any) { m["resourceVersion"] = "1" })
	apply("with other name", "", "one", dry("force", "true"), func(_, m map[string]any) { m["name"] = "other" })
	apply("with no name", "", "one", dry("force", "true"), func(_, m map[string]any) { delete(m, "name") })
	apply("with other kind", "", "one", dry(), func(o, _ map[string]any) { o["kind"] = "Other" })
	apply("with no kind", "", "one", dry(), func(o, _ map[string]any) { delete(o, "kind") })
	apply("with other version", "", "one", dry(), func(o, _ map[string]any) { o["apiVersion"] = "other/v1" })
	apply("with unknown field", "", "one", dry("force", "true"), func(o, _ map[string]any) { o["nonsense"] = "x" })
	apply("with unknown field, strict", "", "one", dry("force", "true", "fieldValidation", "Strict"),
		func(o, _ map[string]any) { o["nonsense"] = "x" })
	apply("with bad label", "", "one", dry("force", "true"), value("not good!"))
	apply("with wrong type", "", "one", dry("force", "true"), func(_, m map[string]any) { m["labels"] = "x" })
	k.patchOf("apply of a bad body", patchTarget{object: name}, applyYAML, query("fieldManager", "one"), "a: [b")
	k.patchOf("apply of an empty body", patchTarget{object: name}, applyYAML, query("fieldManager", "one"), "")
	k.patchOf("apply of CBOR", patchTarget{object: name}, applyCBOR, query("fieldManager", "one"), "x")
	k.patchOf("apply of duplicate fields, strict", patchTarget{object: name}, applyYAML,
		dry("fieldManager", "one", "fieldValidation", "Strict"),
		fmt.Sprintf("apiVersion: %s\nkind: %s\nmetadata:\n  name: %s\n  labels: {a: b}\n  labels: {a: c}\n", k.apiVersion(), k.kind, name))
	k.patchOf("update after apply", patchTarget{save: "applied", object: name}, mergePatch, query("fieldManager", "kubectl-edit"),
		`{"metadata":{"labels":{"owned":"edited"}}}`)
	apply("after update, conflict", "", "one", nil, value("a"))
	if k.full != nil {
		o := answerdiff.Clone(k.full)
		o["metadata"] = map[string]any{"name": name}
		k.patchOf("apply of the full example", patchTarget{object: name}, applyYAML, dry("fieldManager", "one", "force", "true"),
			string(answerdiff.Encode(o)))
	}
}

// set puts a value into a map inside a map.
func set(m map[string]any, field, key, value string) {
	inner, _ := m[field].(map[string]any)
	if inner == nil {
		inner = map[string]any{}
		m[field] = inner
	}
	inner[key] = value
}
