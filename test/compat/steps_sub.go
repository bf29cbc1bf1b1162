package main

import (
	"fmt"
	"net/http"
	"slices"
)

// subSteps exercise the subresources that every kind may have.
func (k *kindCase) subSteps() {
	name := k.objectName(first)
	for _, sub := range k.subs {
		switch sub {
		case "status", "scale", "approval", "ephemeralcontainers", "resize":
			k.get("get "+sub, k.path(name, sub), "", nil)
			k.get("get "+sub+" as Table", k.path(name, sub), asTable, nil)
			k.get("get "+sub+" of missing", k.path("no-such-object", sub), "", nil)
			k.patchOf("merge patch of "+sub+" metadata", "", name, sub, mergePatch, dry(), `{"metadata":{"labels":{"through":"sub"},"annotations":{"through":"sub"}}}`)
			k.patchOf("json patch of "+sub+" with bad path", "", name, sub, jsonPatch, dry(), `[{"op":"remove","path":"/nonsense"}]`)
			k.add("delete "+sub, "", func(*state) *call { return &call{method: http.MethodDelete, path: k.path(name, sub)} })
			k.add("post to "+sub, "", func(*state) *call {
				return &call{method: http.MethodPost, path: k.path(name, sub), body: encode(k.minimal(first))}
			})
		}
	}
	if slices.Contains(k.subs, "status") {
		k.statusSteps()
	}
	if slices.Contains(k.subs, "scale") {
		k.scaleSteps()
	}
}

// statusSteps write status: as a whole, field by field, and together with what
// a status write must not touch.
func (k *kindCase) statusSteps() {
	name := k.objectName(first)
	put := func(label string, change func(o map[string]any)) {
		k.add("status "+label, "", func(s *state) *call {
			o := s.object("first")
			delete(o["metadata"].(map[string]any), "resourceVersion")
			change(o)
			return &call{method: http.MethodPut, path: k.path(name, "status"), query: dry(), body: encode(o)}
		})
	}
	put("update without change", func(map[string]any) {})
	put("update with labels", func(o map[string]any) { set(o["metadata"].(map[string]any), "labels", "through", "status") })
	put("update with old resourceVersion", func(o map[string]any) { o["metadata"].(map[string]any)["resourceVersion"] = "1" })
	put("update with no status", func(o map[string]any) { delete(o, "status") })
	put("update with wrong type", func(o map[string]any) { o["status"] = "x" })
	put("update with unknown field", func(o map[string]any) { o["status"] = map[string]any{"nonsense": 1} })
	if k.full == nil {
		return
	}
	put("update with the full example", func(o map[string]any) { o["status"] = copyTree(k.full["status"]) })
	put("update with spec of the full example", func(o map[string]any) { o["spec"] = copyTree(k.full["spec"]) })
	for _, p := range paths(k.full, 6) {
		if p[0] != "status" || len(p) == 1 {
			continue
		}
		put("field "+pathText(p), func(o map[string]any) { graft(o, k.full, p, nil) })
		if _, isNumber := at(k.full, p).(fmt.Stringer); isNumber {
			put("field "+pathText(p)+" negative", func(o map[string]any) { graft(o, k.full, p, -1) })
		}
	}
	k.add("apply status", "", func(*state) *call {
		body := map[string]any{"apiVersion": k.apiVersion(), "kind": k.kind, "metadata": map[string]any{"name": name}, "status": k.full["status"]}
		return &call{method: http.MethodPatch, path: k.path(name, "status"), query: dry("fieldManager", "status-one", "force", "true"), contentType: applyYAML, body: encode(body)}
	})
	k.patchOf("strategic patch of status", "", name, "status", strategic, dry(), string(encode(map[string]any{"status": k.full["status"]})))
}

func (k *kindCase) scaleSteps() {
	name := k.objectName(first)
	scale := func(replicas any, more ...any) map[string]any {
		o := map[string]any{"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": map[string]any{"name": name, "namespace": k.namespace}, "spec": map[string]any{"replicas": replicas}}
		for i := 0; i+1 < len(more); i += 2 {
			o["metadata"].(map[string]any)[more[i].(string)] = more[i+1]
		}
		return o
	}
	put := func(label string, body any) {
		k.add("scale "+label, "", func(*state) *call {
			return &call{method: http.MethodPut, path: k.path(name, "scale"), body: encode(body), query: dry()}
		})
	}
	put("to 3", scale(3))
	put("to -1", scale(-1))
	put("to a string", scale("x"))
	put("with other name", scale(3, "name", "other"))
	put("with old resourceVersion", scale(3, "resourceVersion", "1"))
	put("with other uid", scale(3, "uid", "11111111-1111-1111-1111-111111111111"))
	put("with the wrong kind", k.minimal(first))
	put("with nothing", map[string]any{})
	k.patchOf("scale by merge patch", "", name, "scale", mergePatch, nil, `{"spec":{"replicas":2}}`)
	k.patchOf("scale by json patch", "", name, "scale", jsonPatch, dry(), `[{"op":"replace","path":"/spec/replicas","value":4}]`)
	k.patchOf("scale by strategic patch", "", name, "scale", strategic, dry(), `{"spec":{"replicas":5}}`)
	k.patchOf("scale by apply", "", name, "scale", applyYAML, query("fieldManager", "scaler"), string(encode(map[string]any{"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": map[string]any{"name": name}, "spec": map[string]any{"replicas": 2}})))
	k.get("get after scale", k.path(name, ""), "", nil)
	k.patchOf("scale of missing", "", "no-such-object", "scale", mergePatch, nil, `{"spec":{"replicas":2}}`)
}

// handSteps send the hand-written cases of the kind.
func (k *kindCase) handSteps() {
	for i, c := range k.corpus.cases[k.key()] {
		label := or(c.Name, fmt.Sprintf("%d", i+1))
		q := dry()
		if c.Store || !k.can("get") {
			q = nil
		}
		name := k.objectName(first)
		expand := func(v any) any { return k.expand(v) }
		switch {
		case c.Create != nil:
			n := fresh
			if c.Store {
				n = 20 + i
			}
			k.post("case "+label, q, merge(k.minimal(n), expand(c.Create)))
		case c.Update != nil:
			k.change("case "+label, "first", "", q, func(o, m map[string]any) { delete(m, "resourceVersion"); merge(o, expand(c.Update)) })
		case c.Status != nil:
			k.add("case "+label, "", func(s *state) *call {
				o := s.object("first")
				delete(o["metadata"].(map[string]any), "resourceVersion")
				return &call{method: http.MethodPut, path: k.path(name, "status"), query: q, body: encode(merge(o, expand(c.Status)))}
			})
		case c.Post != nil:
			k.add("case "+label, "", func(*state) *call {
				return &call{method: http.MethodPost, path: k.path(or(c.With, name), c.Sub), query: q, body: encode(expand(c.Post))}
			})
		case c.Put != nil:
			k.add("case "+label, "", func(s *state) *call {
				o := s.object("first")
				delete(o["metadata"].(map[string]any), "resourceVersion")
				return &call{method: http.MethodPut, path: k.path(name, c.Sub), query: q, body: encode(merge(o, expand(c.Put)))}
			})
		case c.Patch != nil:
			k.patchOf("case "+label, "", name, c.Sub, strategic, q, string(encode(expand(c.Patch))))
		}
	}
}

// expand replaces the words of the corpus inside a tree.
func (k *kindCase) expand(v any) any {
	out, err := parseJSON([]byte(k.corpus.replace(string(encode(v)), k.namespace, first)))
	if err != nil {
		return v
	}
	return out
}
